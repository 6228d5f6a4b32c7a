"""Tokenizers and chat templates that grow exponentially, loop, recurse or try to read files."""
import base64

from case import COMMAND, EITHER, REFUSED, TEXT, Case

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def tokenizer(**parts):
    return lambda place: place.edit(TOKENIZER, lambda document: document.update(parts))


def model_of_tokenizer(**parts):
    return lambda place: place.edit(TOKENIZER, lambda document: document["model"].update(parts))


def emitting(text, change):
    """The folder's own template emits the text that triggers the tokenizer's fault."""

    def both(place):
        place.edit(TOKENIZER_CONFIG, lambda document: document.update(chat_template=text))
        change(place)

    return both


def replacing(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def doubling(times):
    return {"type": "Sequence", "normalizers": [replacing({"String": "a"}, "aa")] * times}


def splitting(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def bpe(vocab, merges):
    return {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": merges}


def tokenizer_cases():
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 40}, *doubling(40)["normalizers"]]}
    changes = {
        "replace-doubles": tokenizer(normalizer=doubling(40)),
        "replace-doubles-prepended": tokenizer(normalizer=prepend),
        "replace-grows-1000": tokenizer(normalizer={"type": "Sequence", "normalizers": [replacing({"Regex": "."}, "a" * 1000)] * 4}),
        "replace-empty-match": tokenizer(normalizer={"type": "Sequence", "normalizers": [replacing({"Regex": ""}, "aaaaaaaa")] * 12}),
        "decoder-doubles": tokenizer(decoder={"type": "Sequence", "decoders": [BYTE_LEVEL] + [replacing({"Regex": "."}, "aa")] * 40}),
        "regex-nested-plus": emitting("{{ 'a' * 64 }}!", tokenizer(pre_tokenizer=splitting("(a+)+$"))),
        "regex-alternation": emitting("{{ 'a' * 64 }}!", tokenizer(pre_tokenizer=splitting("(a|a|aa)+$"))),
        "regex-backreference": emitting("{{ 'a' * 3000 }}!", tokenizer(pre_tokenizer=splitting(r"(a*)*(a*)*\1\2b"))),
        "regex-repetition": tokenizer(pre_tokenizer=splitting("((((a{1000}){1000}){1000}){1000})")),
        "regex-deep": tokenizer(pre_tokenizer=splitting("(" * 20_000 + "a" + ")" * 20_000)),
        "regex-broken": tokenizer(pre_tokenizer=splitting("[[[(((")),
        "normalizers-nested": tokenizer(normalizer=nested(100)),
        "normalizers-100000": tokenizer(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100_000}),
        "charsmap-garbage": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 4096).decode()}),
        "charsmap-huge-trie": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xf0\xff\xff\x7f" + bytes(64)).decode()}),
        "charsmap-cyclic": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(cyclic_trie()).decode()}),
        "charsmap-empty": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": ""}),
        "ids-huge": tokenizer(model=bpe({"a": 2**32 - 1, "h": 0, "e": 2**31}, [])),
        "ids-beyond": tokenizer(model=bpe({"a": 2**64, "b": -1}, [])),
        "ids-same": tokenizer(model=bpe({letter: 0 for letter in "helo"}, [])),
        "ids-outside-vocab-size": tokenizer(model=bpe({letter: 10_000 + i for i, letter in enumerate("helo usr<|im_sta>\nŠĊĠ")}, [])),
        "merges-cyclic": tokenizer(model=bpe({"a": 0, "b": 1, "ab": 2, "ba": 3, "aba": 4}, ["a b", "b a", "ab a", "a ba", "aba a"])),
        "merges-unknown": model_of_tokenizer(merges=["x y z", "", " ", "nowhere nothing"]),
        "merges-many": tokenizer(model=bpe({"a": 0, "aa": 1}, ["a a"] * 300_000)),
        "prefix-absurd": model_of_tokenizer(continuing_subword_prefix="x" * 1_000_000, end_of_word_suffix="y" * 1_000_000),
        "dropout": model_of_tokenizer(dropout=1e308),
        "vocab-empty": tokenizer(model=bpe({}, []), added_tokens=[]),
        "unigram-nan": tokenizer(model={"type": "Unigram", "unk_id": 999_999, "vocab": [["a", -1e308], ["b", 1e308]]}),
        "unigram-empty-piece": tokenizer(model={"type": "Unigram", "unk_id": 0, "vocab": [["", 0.0], ["", 0.0]]}),
        "wordpiece-prefix": tokenizer(model={"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "gone", "continuing_subword_prefix": "", "max_input_chars_per_word": 2**63}),
        "added-token-empty": tokenizer(added_tokens=[{"id": 0, "content": "", "special": True, "single_word": False, "lstrip": True, "rstrip": True, "normalized": True}]),
        "added-tokens-many": tokenizer(added_tokens=[{"id": i, "content": f"<{i}>", "special": False, "single_word": False, "lstrip": True, "rstrip": True, "normalized": True} for i in range(50_000)]),
        "padding": tokenizer(padding={"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}),
        "padding-multiple": tokenizer(padding={"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 2**62, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}),
        "truncation": tokenizer(truncation={"max_length": 0, "stride": 2**62, "strategy": "LongestFirst", "direction": "Left"}),
        "post-processor": tokenizer(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 1000, "pair": [], "special_tokens": {"x": {"id": "x", "ids": [2**32 - 1] * 1000, "tokens": ["x"] * 1000}}}),
        "strip-decoder": tokenizer(decoder={"type": "Strip", "content": "a", "start": 2**63, "stop": 2**63}),
        "type-unknown": tokenizer(model={"type": "Shell", "command": "touch evil"}),
    }
    for name, change in changes.items():
        # GenAI parses tokenizers with its own code, and ours is not involved. If the model lacks a member, as in
        # type-unknown, GenAI 0.18 reads past its tables: the outcome depends on the memory that follows.
        ways = TEXT if name in ("ids-huge", "charsmap-garbage") else COMMAND
        yield Case(f"tokenizer-{name}", change, ways, EITHER, names=(TOKENIZER, "token"), prompt="aaaaaaaa hello", seconds=15)
        if name.startswith(("replace", "padding")):
            yield Case(f"tokenizer-{name}-without-template", change, ("generate",), EITHER, names=(TOKENIZER, "token"), prompt="aaaaaaaa", chat=False)


def nested(depth):
    made = {"type": "NFC"}
    for _ in range(depth):
        made = {"type": "Sequence", "normalizers": [made]}
    return made


def cyclic_trie():
    """A double-array trie whose units all lead back into it."""
    units = b"".join(((i << 10) & 0xFFFFFFFF | 0x1FF).to_bytes(4, "little") for i in range(256))
    return len(units).to_bytes(4, "little") + units + b"a\0b\0"


TEMPLATES = {
    "string-doubling": "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "string-doubling-format": "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}x",
    "string-times": "{{ 'a' * 99999999999 }}",
    "string-times-times": "{{ ('a' * 1000000) * 1000000 }}",
    "string-replace": "{% set ns = namespace(s='aaaa') %}{% for i in range(40) %}{% set ns.s = ns.s | replace('a', 'aa') %}{% endfor %}x",
    "string-replace-method": "{% set ns = namespace(s='aaaa') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}x",
    "string-join": "{% set ns = namespace(s='aaaa') %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}x",
    "string-upper-many": "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set t = s | upper %}{% endfor %}x",
    "list-doubling": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}x",
    "list-doubling-output": "{% set ns = namespace(l=['aaaa']) %}{% for i in range(28) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "list-nested-tojson": "{% set ns = namespace(l=['aaaa']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
    "list-nested-length": "{% set ns = namespace(l=[]) %}{% for i in range(300000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    "list-times": "{{ ([1] * 99999999999) | length }}",
    "dict-nested": "{% set ns = namespace(d={}) %}{% for i in range(300000) %}{% set ns.d = {'a': ns.d} %}{% endfor %}{{ ns.d | tojson }}",
    "indent": "{{ 'a\nb' | indent(99999999999) }}",
    "indent-large": "{{ ('a\n' * 100000) | indent(100000) }}",
    "center": "{{ 'a' | center(99999999999) }}",
    "ljust": "{{ 'a'.ljust(99999999999) }}",
    "tojson-indent": "{{ [1, [2]] | tojson(indent=99999999999) }}",
    "tojson-indent-negative": "{{ [1, [2]] | tojson(indent=-1) }}",
    "percent-format": "{{ '%99999999999d' % 1 }}",
    "format-filter": "{{ '%0999999999d' | format(1) }}",
    "format-method": "{{ '{:>99999999999}'.format(1) }}",
    "range": "{% for i in range(10 ** 12) %}x{% endfor %}",
    "range-list": "{{ range(10 ** 12) | list | length }}",
    "range-sum": "{{ range(99999) | list | join('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') | length }}" * 200,
    "power": "{{ 10 ** 999999999 }}",
    "batch": "{{ [1] | batch(99999999999, 'x') | list }}",
    "slice": "{{ [1] | slice(99999999999) | list }}",
    "loop-forever": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "loop-output": "{% for a in range(99999) %}{% for b in range(99) %}{{ 'aaaaaaaaaaaaaaaa' * 1000 }}{% endfor %}{% endfor %}",
    "macro-recursion": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "macro-doubling": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}aaaa{% endmacro %}{{ m(60) }}",
    "macro-caller": "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ m }}{% endcall %}",
    "loop-recursive": "{% for i in [[[]]] recursive %}{{ loop([[[]]]) }}{% endfor %}",
    "self-include": "{% include 'chat' %}",
    "self-extends": "{% extends 'chat' %}",
    "include-secret": "{% include '../target/secret.txt' %}",
    "include-absolute": "{% include '/etc/passwd' %}",
    "import-secret": "{% import '../target/secret.txt' as x %}{{ x }}",
    "from-import": "{% from '/etc/passwd' import root %}",
    "extends": "{% extends '/etc/passwd' %}",
    "python-escape": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "python-globals": "{{ raise_exception.__globals__['os'].system('touch evil') }}",
    "deep-parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep-lists": "{{ " + "[" * 50_000 + "]" * 50_000 + " }}",
    "deep-blocks": "{% if true %}" * 20_000 + "{% endif %}" * 20_000,
    "deep-filters": "{{ 'a'" + " | upper" * 100_000 + " }}",
    "deep-minus": "{{ " + "-" * 100_000 + "1 }}",
    "deep-not": "{{ " + "not " * 100_000 + "1 }}",
    "deep-attributes": "{{ messages" + ".a" * 100_000 + " }}",
    "deep-add": "{{ 1" + " + 1" * 200_000 + " }}",
    "strftime": "{{ strftime_now('%Y' * 50000) }}",
    "strftime-doubling": "{% set ns = namespace(s='%B%B%B%B') %}{% for i in range(60) %}{% set ns.s = strftime_now(ns.s + ns.s) %}{% endfor %}x",
    "raise-megabytes": "{{ raise_exception('a' * 50000000) }}",
    "unfinished": "{% for m in messages %}{{ m",
    "split": "{% set ns = namespace(l=('a,' * 100000).split(',')) %}{% for i in range(100000) %}{% set x = ns.l | sort %}{% endfor %}x",
    "unique-sort": "{% for i in range(100000) %}{% set x = range(99999) | sort(reverse=true) %}{% endfor %}x",
    "in-list": "{% set l = range(99999) | list %}{% for i in range(99999) %}{% if -1 in l %}{% endif %}{% endfor %}x",
    "wordwrap": "{{ ('a' * 1000000) | wordwrap(0) }}",
    "nul": "a\0b{{ '\0' * 1000000 }}",
}


def template(text):
    return lambda place: place.edit(TOKENIZER_CONFIG, lambda document: document.update(chat_template=text))


def cut(text):
    return lambda place: place.write("chat_template.jinja", text)


def template_cases():
    names = (TOKENIZER_CONFIG, "chat_template", "template", "max_length", "token")
    for name, text in TEMPLATES.items():
        # GenAI renders templates with its own code; one case of each kind shows the outcome.
        ways = TEXT if name in ("macro-recursion", "include-secret", "unfinished") else COMMAND
        yield Case(f"template-{name}", template(text), ways, EITHER, names=names, seconds=8)
    yield Case("template-file-wins", cut(TEMPLATES["string-doubling"]), COMMAND, EITHER, names=("chat_template.jinja",))
    yield Case("template-100-mb", cut("a" * 100_000_000), COMMAND, REFUSED, names=("chat_template.jinja", "token"))
    yield Case("template-list-of-names", template([{"name": "default", "template": 3}, {"name": "default"}, None]), COMMAND, REFUSED, names=(TOKENIZER_CONFIG,))
    yield Case("template-number", template(7), COMMAND, REFUSED, names=(TOKENIZER_CONFIG,))
    tokens = {"bos_token": {"content": "<s>" * 1_000_000}, "chat_template": "{{ bos_token * 1000 }}"}
    yield Case("template-long-tokens", lambda place: place.edit(TOKENIZER_CONFIG, lambda document: document.update(tokens)), COMMAND, EITHER, names=names)


def cases():
    yield from tokenizer_cases()
    yield from template_cases()
