#!/usr/bin/env python3
"""Fetches the demo model's text and turns it into tokens.

    python3 data.py --work WORK

Steps: download the packages of sources.py, screen licences file by file, drop near-duplicates
(MinHash over word shingles), hold out whole documents, train the tokenizer, write the tokens.
Everything lands in WORK; a second run with the same packages writes the same bytes.

    WORK/corpus/{train,heldout}/KIND.txt     documents, joined by NUL bytes
    WORK/tokens/{train,heldout}/KIND.npy     uint16 tokens, <|endoftext|> after every document
    WORK/tokenizer.json, WORK/manifest.json
"""

import argparse
import collections
import hashlib
import json
import pathlib
import re

import numpy as np

import chat
import sources
import vocabulary

SHINGLE_WORDS = 8
PERMUTATIONS = 64
BANDS = 16                      # 16 bands of 4 rows: pairs above about 0.5 become candidates
SIMILAR = 0.6                   # candidates at or above this estimated Jaccard index are dropped
REPEAT_LENGTH = 160             # a paragraph at least this long may occur this often
REPEAT_LIMIT = 2
PRIME = (1 << 31) - 1

Document = collections.namedtuple("Document", "name source kind text")

# Packages are chosen for their licence; this screen catches single files that came from elsewhere.
UNWANTED = re.compile(
    r"GNU (?:Lesser |Library |Affero )?General Public|GNU Free Documentation|\bA?L?GPL\b|"
    r"non-?commercial|Creative Commons Attribution-(?:Share|Non)", re.I)


def stable_hash(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


# ---- documents --------------------------------------------------------------------------------

def screen(source, documents):
    """Keeps documents that name no copyleft licence; returns them and the names of the others."""
    kept, refused = [], []
    for name, text in documents:
        head = text[:4000] if source.kind in ("code", "manual") else ""
        if UNWANTED.search(head):
            refused.append(name)
        else:
            kept.append(Document(f"{source.name}/{name}", source.name, source.kind, tidy(text)))
    return kept, refused


def tidy(text):
    text = text.replace("\r\n", "\n").replace("\x00", "").replace("\ufeff", "")
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return text.strip("\n") + "\n"


def drop_repeats(documents):
    """Removes long paragraphs seen before (licence headers, boilerplate), document by document."""
    seen = collections.Counter()
    out = []
    for doc in documents:
        kept = []
        for paragraph in doc.text.split("\n\n"):
            key = stable_hash(" ".join(paragraph.split()))
            seen[key] += len(paragraph) >= REPEAT_LENGTH
            if seen[key] <= REPEAT_LIMIT:
                kept.append(paragraph)
        out.append(doc._replace(text="\n\n".join(kept).strip("\n") + "\n"))
    return [d for d in out if len(d.text) >= 200]


def shingles(text):
    """Hashes of every run of SHINGLE_WORDS words, as a uint64 array."""
    words = re.findall(r"\w+", text.lower())
    if len(words) < SHINGLE_WORDS:
        return np.array([stable_hash(" ".join(words)) % PRIME], dtype=np.uint64)
    codes = {}
    word = np.fromiter((codes.setdefault(w, stable_hash(w)) % PRIME for w in words),
                       dtype=np.uint64, count=len(words))
    mixed = np.zeros(len(words) - SHINGLE_WORDS + 1, dtype=np.uint64)
    for i in range(SHINGLE_WORDS):
        mixed = (mixed * np.uint64(1_000_003) + word[i:i + len(mixed)]) % np.uint64(PRIME)
    return np.unique(mixed)


def signature(hashes, rng_state):
    """The MinHash signature: for every permutation, the smallest permuted hash."""
    a, b = rng_state
    low = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, len(hashes), 1 << 14):
        block = hashes[start:start + (1 << 14), None]
        low = np.minimum(low, ((block * a + b) % np.uint64(PRIME)).min(axis=0))
    return low


def drop_near_duplicates(documents):
    """Returns the kept documents and the (dropped, because of) pairs; the first one stays."""
    rng = np.random.default_rng(7)
    state = (rng.integers(1, PRIME, PERMUTATIONS, dtype=np.uint64),
             rng.integers(0, PRIME, PERMUTATIONS, dtype=np.uint64))
    buckets, kept, dropped = collections.defaultdict(list), [], []
    rows = PERMUTATIONS // BANDS
    for doc in documents:
        mark = signature(shingles(doc.text), state)
        keys = [(i, mark[i * rows:(i + 1) * rows].tobytes()) for i in range(BANDS)]
        near = {other for key in keys for other in buckets[key]}
        twin = next((n for n in sorted(near) if (kept[n][1] == mark).mean() >= SIMILAR), None)
        if twin is not None:
            dropped.append((doc.name, kept[twin][0].name))
            continue
        for key in keys:
            buckets[key].append(len(kept))
        kept.append((doc, mark))
    return [doc for doc, _ in kept], dropped


def cap(documents, limit):
    """Whole documents in hashed order until the limit is reached; order by name again after."""
    taken, size = [], 0
    for doc in sorted(documents, key=lambda d: stable_hash("cap " + d.name)):
        if size + len(doc.text) <= limit:
            taken.append(doc)
            size += len(doc.text)
    return sorted(taken)


def hold_out(source, documents):
    """Splits one source into (train, held-out) by whole documents, chosen by hash."""
    chosen, size = set(), 0
    goal = source.held_out * sum(len(d.text) for d in documents)
    for doc in sorted(documents, key=lambda d: stable_hash("hold out " + d.name)):
        if doc.name.split("/", 1)[1] in source.fixed_held_out:
            chosen.add(doc.name)
        elif size + len(doc.text) <= 1.2 * goal and size < goal:
            chosen.add(doc.name)
            size += len(doc.text)
    return ([d for d in documents if d.name not in chosen],
            [d for d in documents if d.name in chosen])


def collect(work, log):
    """All sources through all filters: (train, held-out, manifest, roots of unpacked packages)."""
    train, held, manifest, roots = [], [], {}, {}
    everything = []
    for source in sources.SOURCES:
        folder = sources.fetch(source, sources.downloads_folder(work))
        roots[source.name] = folder / "x"
        documents, refused = screen(source, sources.read_documents(source, folder))
        # Duplicates are searched among somewhat more than is taken in the end.
        documents = cap(documents, int(1.3 * source.cap))
        everything += documents
        manifest[source.name] = {"archive": sources.archive_name(folder), "kind": source.kind,
                                 "licence": source.licence, "refused": refused}
        log(f"{source.name}: {len(documents)} documents, {len(refused)} refused by licence")
    everything = drop_repeats(everything)
    everything, dropped = drop_near_duplicates(everything)
    manifest["near_duplicates_dropped"] = dropped
    log(f"near-duplicates dropped: {len(dropped)}")
    for source in sources.SOURCES:
        mine = cap([d for d in everything if d.source == source.name], source.cap)
        keep, out = hold_out(source, mine)
        train, held = train + keep, held + out
        size = lambda docs: sum(len(d.text.encode()) for d in docs)
        manifest[source.name].update(train_documents=len(keep), train_bytes=size(keep),
                                     heldout_documents=[d.name for d in out],
                                     heldout_bytes=size(out))
    return train, held, manifest, roots


def overlap(train, held):
    """Share of held-out shingles, by kind, that also occur in the training text."""
    known = np.unique(np.concatenate([shingles(d.text) for d in train]))
    shares = {}
    for kind in sorted({d.kind for d in held}):
        mine = np.concatenate([shingles(d.text) for d in held if d.kind == kind])
        shares[kind] = round(float(np.isin(mine, known).mean()), 4)
    return shares


# ---- output -----------------------------------------------------------------------------------

def write_texts(folder, documents):
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sorted({d.kind for d in documents}):
        order = sorted((d for d in documents if d.kind == kind),
                       key=lambda d: stable_hash("order " + d.name))
        (folder / f"{kind}.txt").write_bytes(b"\0".join(d.text.encode() for d in order))


def read_texts(folder):
    """{kind: [document text, ...]} of a folder written by write_texts."""
    return {p.stem: p.read_bytes().decode().split("\0") for p in sorted(folder.glob("*.txt"))}


def write_tokens(folder, texts, tokenizer):
    """One stream a kind; also keeps where documents start."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for kind, documents in texts.items():
        parse = vocabulary.encode_chat if kind == "chat" else vocabulary.encode
        encoded = [parse(tokenizer, text) for text in documents]
        stream = np.concatenate([np.array(ids + [vocabulary.END_OF_TEXT], dtype=np.uint16)
                                 for ids in encoded])
        np.save(folder / f"{kind}.npy", stream)
        counts[kind] = len(stream)
    return counts


def finish(work, train_texts, held_texts, manifest, log):
    """Tokenizer and tokens from texts: shared by the real corpus and the smoke corpus."""
    tokenizer = vocabulary.train(train_texts)
    tokenizer.save(str(work / "tokenizer.json"))
    manifest["train_tokens"] = write_tokens(work / "tokens/train", train_texts, tokenizer)
    manifest["heldout_tokens"] = write_tokens(work / "tokens/heldout", held_texts, tokenizer)
    (work / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False))
    log("tokens: " + json.dumps({k: manifest[k] for k in ("train_tokens", "heldout_tokens")}))


def prepare(work, log=print):
    train, held, manifest, roots = collect(work, log)
    manifest["shingle_overlap"] = overlap(train, held)
    log(f"held-out shingles that occur in training text: {manifest['shingle_overlap']}")
    write_texts(work / "corpus/train", train)
    write_texts(work / "corpus/heldout", held)
    turns = chat.conversations(train, roots)
    (work / "corpus/train/chat.txt").write_bytes("\0".join(turns).encode())
    finish(work, read_texts(work / "corpus/train"), read_texts(work / "corpus/heldout"),
           manifest, log)


def smoke_corpus(work, log=print):
    """A tiny corpus without network: Python's own library, as code and as its docstrings."""
    library = pathlib.Path(collections.__file__).parent.parent
    texts = [p.read_text(errors="replace") for p in sorted(library.glob("*.py"))[:120]]
    prose = ["\n\n".join(re.findall(r'"""(.*?)"""', t, re.S)) + "\n" for t in texts]
    prose = [p for p in prose if len(p) > 400]
    every = {"code": texts, "prose": prose}
    train = {kind: docs[: -len(docs) // 8] for kind, docs in every.items()}
    held = {kind: docs[-len(docs) // 8:] for kind, docs in every.items()}
    train["chat"] = [chat.conversation([(q, a)]) for q, a in chat.SMALL_TALK] * 8
    for part, content in (("train", train), ("heldout", held)):
        (work / "corpus" / part).mkdir(parents=True, exist_ok=True)
        for kind, docs in content.items():
            (work / f"corpus/{part}/{kind}.txt").write_bytes("\0".join(docs).encode())
    finish(work, train, held, {}, log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    prepare(args.work, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
