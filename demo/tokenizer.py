"""Trains the demo model's tokenizer: byte-level BPE on the training part of the corpus, with a chat template.

    python tokenizer.py OUT    writes tokenizer.json and tokenizer_config.json into the folder OUT
"""
import argparse
import json
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus

VOCABULARY = 1024
DOCUMENTS = 5000
END, PAD, TURN, TURN_END = "<|end|>", "<|pad|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (END, PAD, TURN, TURN_END)

# Words with the space before them, single digits, punctuation, line breaks.
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat(turns):
    """A conversation in the template's format."""
    return "".join(f"{TURN}{role}\n{text}{TURN_END}\n" for role, text in turns)


def train(seed):
    """Trains the tokenizer on the corpus with this seed."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (text for document in islice(corpus.documents(seed, held=False), DOCUMENTS)
             for role, words in document.turns for text in (f"{role}\n", words))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer


def save(tokenizer, folder):
    """Writes the files that onnxruntime-genai and the Hugging Face libraries read."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 288,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": END,
        "eos_token": TURN_END,
        "pad_token": PAD,
        "unk_token": None,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    tokenizer = train(chosen.seed)
    save(tokenizer, chosen.out)
    print(f"{chosen.out}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
