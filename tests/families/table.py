"""The table of docs/models.md."""
from families.catalogue import FAMILIES

START, END = "<!-- cargo xtask families writes what follows. -->", "<!-- End of what cargo xtask families writes. -->"


def is_placed(row):
    found = row["placement"]
    return found.get("partitions") == 1 and found["device"] == found["total"]


def table(rows):
    """The counts, and a line for each family."""
    counted = [row for row in rows if row["counts"]]
    right = [row for row in counted if row["right"]]
    options, elsewhere = sum(row["option"] for row in right), len(right) - sum(map(is_placed, right))
    where = "All of them run" if elsewhere == 0 else f"All but {elsewhere} of them run"
    lines = [
        f"**{len(right)} of {len(counted)}** folders are right; {options} of them, marked with \\*, need an option of GenAI"
        f" ([below](#what-needs-an-option)). {where} in",
        "one partition, with every node on the device.",
        "",
        "| family | right | precisions and options that are right |",
        "|---|---|---|",
    ]
    for name, family in FAMILIES.items():
        own = [row for row in counted if row["family"] == name]
        good = [f"`{row['variant']}`" + ("\\*" if row["option"] else "") for row in own if row["right"]]
        if own:
            lines.append(f"| {family.title} | {len(good)} of {len(own)} | {', '.join(good)} |")
    return "\n".join(lines)


def put(page, text):
    """The page with another table."""
    before, rest = page.split(START)
    return f"{before}{START}\n{text}\n{END}{rest.split(END)[1]}"
