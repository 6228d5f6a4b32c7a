"""The text files of a model's folder: the tokenizer, and the settings of ONNX Runtime GenAI."""
import collections
import json

from .settings import SPECIALS

# Words with the space or the sign before them, up to three digits, punctuation, line breaks: the pieces of Llama 3.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# What pairs of letters are counted in.
SAMPLE = """
The model reads the prompt once and keeps the keys and the values of all its tokens in a cache. After that it reads one
token at a time, and each of them attends to everything that came before. A graph is split into parts; every part is
compiled for the device where it runs, and what is left over runs on the processor. Memory for the results is planned
before the first run, so that nothing has to be allocated while the stream is busy. There was once a kernel that was so
fast that the time between two kernels was longer than the kernel itself, and this is why small ones are now joined.
Hello world, this is what a sentence looks like when nobody has anything to say. Weights may be stored with four bits,
which makes them smaller, or with sixteen, which makes the sums more exact. Other things being equal, we should take the
way that moves fewer bytes. Upon the hour they would write down how many tensors had been lost, and found that it was none.
"""
CHAT = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def alphabet():
    """The characters that byte-level vocabularies use for the bytes: their own if it can be printed, or a later one."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}


def merges(count):
    """At most `count` pairs, most frequent first: each joins two tokens of the sample to a new one."""
    letters = alphabet()
    words = collections.Counter(f" {word}" for word in SAMPLE.split())
    words = {tuple(letters[byte] for byte in word.encode()): number for word, number in words.items()}
    pairs = []
    while len(pairs) < count:
        counts = collections.Counter()
        for word, number in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] += number
        if not counts:
            break
        pairs.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = {joined(word, pairs[-1]): number for word, number in words.items()}
    return pairs


def joined(word, pair):
    result, at = [], 0
    while at < len(word):
        width = 2 if word[at : at + 2] == pair else 1
        result.append("".join(word[at : at + width]))
        at += width
    return tuple(result)


def tokenizer(settings):
    pairs = merges(settings.vocabulary - 256 - len(SPECIALS))
    tokens = list(alphabet().values()) + ["".join(pair) for pair in pairs]
    # Large vocabularies have tokens that no text leads to, but that have a text.
    tokens += [f"[{at}]" for at in range(len(tokens), settings.vocabulary - len(SPECIALS))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": settings.special(text), "content": text, **flags} for text in SPECIALS],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": [" ".join(pair) for pair in pairs],
        },
    }


def tokenizer_config():
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20,
        "clean_up_tokenization_spaces": False, "add_bos_token": False, "add_eos_token": False,
        "bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "unk_token": "<|unk|>",
        "chat_template": CHAT,
    }


def genai_config(settings):
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    if settings.has_positions:
        inputs["position_ids"] = "position_ids"
    inputs |= {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    outputs = {f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}
    decoder = {
        "filename": "model.onnx", "session_options": {"log_id": "tiny", "provider_options": []},
        "num_hidden_layers": settings.layers, "hidden_size": settings.hidden, "head_size": settings.head,
        "num_attention_heads": settings.heads, "num_key_value_heads": settings.key_heads,
        "inputs": inputs, "outputs": {"logits": "logits", **outputs},
    }
    model = {
        "type": "llama", "vocab_size": settings.vocabulary, "context_length": settings.context,
        "bos_token_id": settings.special("<|bos|>"), "pad_token_id": settings.pad, "eos_token_id": settings.ends,
        "decoder": decoder,
    }
    search = {
        "do_sample": False, "max_length": settings.context, "min_length": 0, "num_beams": 1, "top_k": 50, "top_p": 1.0,
        "temperature": 1.0, "repetition_penalty": 1.0, "past_present_share_buffer": settings.shares_cache,
    }
    return {"model": model, "search": search}


def write(folder, settings):
    files = {
        "tokenizer.json": tokenizer(settings),
        "tokenizer_config.json": tokenizer_config(),
        "genai_config.json": genai_config(settings),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
