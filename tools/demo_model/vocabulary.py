"""The tokenizer: byte-level BPE with GPT-2's pre-tokenizer, and the three ChatML specials."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SIZE = 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_OF_TEXT, IM_START, IM_END = SIZE - 3, SIZE - 2, SIZE - 1
TRAINING_BYTES = 3_000_000      # a kind; merges hardly change beyond, and it keeps the run short

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def train(texts):
    """Trains the merges on an equal share of every kind but chat; specials get the last ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(SPECIALS), min_frequency=2, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_texts(texts), trainer)
    # A tiny corpus may not fill the vocabulary; unused names keep the ids in place.
    fill = SIZE - len(SPECIALS) - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|unused{i}|>" for i in range(fill)] + SPECIALS)
    if tokenizer.token_to_id(SPECIALS[0]) != END_OF_TEXT:
        raise RuntimeError("special tokens are not where they should be")
    return tokenizer


def training_texts(texts):
    for kind, documents in texts.items():
        left = 0 if kind == "chat" else TRAINING_BYTES * (3 if kind == "prose" else 1)
        for text in documents:
            if left <= 0:
                break
            # Long documents in pieces, so that one novel does not fill a kind's share.
            yield text[:200_000]
            left -= min(len(text), 200_000)


def encode(tokenizer, text):
    """Plain text: a special token's name in it is ordinary text, not the token."""
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text).ids


def encode_chat(tokenizer, text):
    """ChatML: the names of special tokens are the tokens."""
    tokenizer.encode_special_tokens = False
    return tokenizer.encode(text).ids
