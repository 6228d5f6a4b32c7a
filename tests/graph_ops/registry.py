"""The list that random graphs draw from."""
MOVABLE = ("f32", "f16", "i32", "i64", "bool")
TABLE = []


def operator(weight=1):
    """Puts a function on the list, as often as its weight says."""

    def register(function):
        TABLE.extend([function] * weight)
        return function

    return register
