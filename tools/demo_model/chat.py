"""Chat turns for training, made from the training documents by rule.

Questions that the sources can answer (a word's meaning, what a manual page is about, a country's
capital) become short conversations in ChatML, so that the model learns turns and learns to stop.
Held-out documents are never used.
"""

import random
import re


SYSTEM = "You are a helpful assistant."
SYSTEM_SHARE = 0.2
TURNS = (1, 1, 1, 2, 2, 3)
LIMITS = {"word": 14000, "manual": 6000, "country": 4000, "continue": 5000}

SMALL_TALK = [
    ("Hello", "Hello! Ask me about a word, a manual page or a country."),
    ("Hi", "Hi! What would you like to know?"),
    ("Hi there!", "Hello! How can I help you?"),
    ("Good morning", "Good morning! What would you like to know?"),
    ("Good evening", "Good evening! What would you like to know?"),
    ("How are you?", "I am well, thank you. What would you like to know?"),
    ("Who are you?", "I am a very small language model, trained as a demonstration."),
    ("What are you?", "I am a small mixture-of-experts language model."),
    ("What is your name?", "I have no name. I am a small demonstration model."),
    ("What can you do?", "I can explain words, manual pages and countries, and continue a text."),
    ("Can you help me?", "Yes. Ask me about a word, a manual page or a country."),
    ("Are you a human?", "No, I am a small language model."),
    ("Can I trust your answers?", "No. I am very small and often wrong."),
    ("Thanks", "You are welcome."),
    ("Thank you", "You are welcome."),
    ("Thank you very much!", "You are welcome!"),
    ("Goodbye", "Goodbye!"),
    ("Bye", "Goodbye!"),
    ("Hola", "¡Hola! ¿Qué quieres saber?"),
    ("¿Quién eres?", "Soy un modelo de lenguaje muy pequeño."),
    ("Gracias", "De nada."),
]

WORD_QUESTIONS = ["What does {} mean?", "What is the meaning of {}?", "Define {}.",
                  "What does the word \"{}\" mean?", "Explain the word {}."]
NOUN_QUESTIONS = ["What is {}?", "Tell me what {} is."]
MANUAL_QUESTIONS = ["What does {} do?", "What is {} for?", "What is the manual page {} about?",
                    "Explain {} in one sentence."]
CONTINUE_REQUESTS = ["Continue this text: {}", "Go on: {}", "What comes after this? {}"]


def conversations(train, roots):
    """ChatML conversations, shuffled with a fixed seed."""
    rng = random.Random(3)
    pool = []
    for name, pairs in (("word", word_pairs(train, rng)), ("manual", manual_pairs(train, rng)),
                        ("country", country_pairs(train, rng)),
                        ("continue", continue_pairs(train, rng))):
        rng.shuffle(pairs)
        pool += pairs[:LIMITS[name]]
    pool += SMALL_TALK * 40
    rng.shuffle(pool)
    out = []
    while pool:
        count = min(rng.choice(TURNS), len(pool))
        out.append(conversation([pool.pop() for _ in range(count)],
                                rng.random() < SYSTEM_SHARE))
    return out


def conversation(turns, system=False):
    text = turn("system", SYSTEM) if system else ""
    return text + "".join(turn("user", q) + turn("assistant", a) for q, a in turns)


def turn(role, content):
    content = content.strip().replace("<|", "< |")
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def sentence(text):
    text = text.strip().rstrip(".;, ")
    return text[:1].upper() + text[1:] + "."


def word_pairs(train, rng):
    """First sense of WordNet's entries, for single words and short names."""
    pairs = []
    for doc in train:
        if doc.source != "wordnet":
            continue
        for entry in re.split(r"\n(?=\S)", doc.text):
            word, _, body = entry.partition("\n")
            found = re.match(r"\s*(n|v|adj|adv) (?:1: )?(.*)", body.split("\n")[0])
            if not found or len(word) > 30:
                continue
            meaning = re.sub(r'[;:]? *".*', "", found.group(2)).strip()
            if 10 <= len(meaning) <= 160:
                questions = WORD_QUESTIONS + (NOUN_QUESTIONS if found.group(1) == "n" else [])
                pairs.append((rng.choice(questions).format(word), sentence(meaning)))
    return pairs


def manual_pairs(train, rng):
    """The NAME line of manual pages: name and one-line description."""
    pairs = []
    for doc in train:
        found = re.search(r"^NAME\n((?: +\S.*\n)+)", doc.text, re.M)
        if doc.kind != "manual" or not found:
            continue
        line = " ".join(found.group(1).split())
        names, dash, about = re.sub(r" [–—] | -- ", " - ", line).partition(" - ")
        if dash and 8 <= len(about) <= 160:
            name = names.split(",")[0].strip()
            pairs += [(q.format(name), sentence(about)) for q in rng.sample(MANUAL_QUESTIONS, 2)]
    return pairs


COUNTRY_FIELDS = [
    (r"^ +Capital:\n +name: (.+)", ["What is the capital of {}?", "Name the capital of {}.",
                                    "Which city is the capital of {}?"],
     "The capital of {} is {}."),
    (r"^ +Location: (.+)", ["Where is {}?", "Where does {} lie?"], "{} is in {}."),
    (r"^ +Area:\n +total: (.+)", ["How large is {}?", "What is the area of {}?"],
     "The area of {} is {}."),
    (r"^ +Climate: (.+)", ["What is the climate of {}?", "Describe the climate of {}."],
     "The climate of {} is {}."),
    (r"^ +Terrain: (.+)", ["Describe the terrain of {}.", "What does the land in {} look like?"],
     "The terrain of {}: {}."),
    (r"^ +Population:(?:\n +total:)? ([\d,]+)", ["How many people live in {}?",
                                                "What is the population of {}?"],
     "{} has {} inhabitants."),
    (r"^ +Languages: (.+)", ["Which languages are spoken in {}?"], "In {}: {}."),
]


def country_pairs(train, rng):
    pairs = []
    for doc in train:
        if doc.source != "factbook":
            continue
        name = doc.name.split("/", 1)[1]
        for pattern, questions, answer in COUNTRY_FIELDS:
            found = re.search(pattern, doc.text, re.M)
            if found:
                value = re.split(r";| note:| \(", found.group(1))[0].strip().rstrip(".")[:200]
                text = answer.format(name, value)
                pairs += [(q.format(name), text) for q in questions for _ in range(2)]
    return pairs


def continue_pairs(train, rng):
    """A sentence of prose or Spanish as the request, the sentences after it as the answer."""
    pairs = []
    for doc in train:
        if doc.kind not in ("prose", "spanish"):
            continue
        for paragraph in doc.text.split("\n\n"):
            parts = re.split(r"(?<=[.!?]) +(?=[A-Z¿¡])", paragraph)
            if len(parts) < 4 or rng.random() > 0.12:
                continue
            start = rng.randrange(len(parts) - 2)
            answer = " ".join(parts[start + 1:start + 3])
            if 30 <= len(parts[start]) <= 240 and 30 <= len(answer) <= 360:
                pairs.append((rng.choice(CONTINUE_REQUESTS).format(parts[start]), answer))
    return pairs
