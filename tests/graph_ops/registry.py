"""The table of operators for random graphs."""
MOVABLE = ("f32", "f16", "i32", "i64", "bool")
TABLE = []


def operator(weight=1):
    """Adds a function to the table, as many times as its weight."""

    def register(function):
        TABLE.extend([function] * weight)
        return function

    return register
