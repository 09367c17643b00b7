"""placeholder"""
def add(commands):
    pass
