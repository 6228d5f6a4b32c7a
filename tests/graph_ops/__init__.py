"""Operators for random graphs: each function adds one use of an operator to a `Maker`, or returns without adding any.

Values are kept moderate on purpose (no poles, no overflow), since a difference that rounding can explain proves
nothing.
"""
from graph_ops import elementwise, indexing, movement, norms, products, reductions, shapes, windows
from graph_ops.registry import TABLE, operator

__all__ = ["TABLE", "elementwise", "indexing", "movement", "norms", "operator", "products", "reductions", "shapes", "windows"]
