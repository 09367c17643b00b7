"""Thin, equal doors to one engine. `auth`, `problems`, `render` and `http` are shared; the doors never import each other."""
