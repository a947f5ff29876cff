"""`runtime.container`: what lists and tuples of results are, under TVM's names.

Several results are a list of Python: `isinstance(result, container.ADT)` tells them from one.
Read next: `network/vm.py`.
"""

ADT = Array = list
Map = dict
String = str
ShapeTuple = tuple[int, ...]

__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String"]
