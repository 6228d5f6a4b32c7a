"""Model families: tiny models with random weights, built by the real model builder and compared with references.

`cargo xtask families` runs `python -m families` in an environment of its own. Nothing is downloaded but packages:
configurations, weights and the tokenizer are made here. Each folder is checked in processes of its own.

| module | |
|---|---|
| `catalogue` | the families, as configurations of transformers |
| `variants` | precisions and options of the builder, and which folder is the reference |
| `make` | models of transformers with a tokenizer, and GenAI folders built from them |
| `plain` | copies of graphs in single precision, and with experts as plain nodes |
| `generate` | tokens and scores through GenAI, in a process of its own |
| `check` | one folder: its reference, GenAI, textgen, and where its nodes run |
| `judge` | the rule that decides |
| `table` | the table of docs/models.md |
"""
