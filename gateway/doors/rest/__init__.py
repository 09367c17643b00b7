"""The REST door (DESIGN §8): one file a noun, each with its operations as data; `door` performs them, `openapi` describes them."""

from gateway.doors.rest.door import RestDoor

__all__ = ["RestDoor"]
