"""What the models are asked."""

# Tokens that are compared.
STEPS = 24
TEXTS = [
    "The kettle sang before anyone in the house had woken up.",
    "Nine grey geese crossed the field, one behind the other, without a sound.",
    "The author of this letter must have been in a great hurry.",
    "A train that is never late needs neither a whistle nor a clock.",
    "They painted the door blue, then green, and at last blue again.",
    "How many steps does it take to walk around an island that drifts?",
]
# The long one is longer than the windows and than what LongRoPE was trained on.
PROMPTS = {"short": "Nine grey geese crossed", "long": " ".join(TEXTS[2:5]) + " How many steps does it take"}
