#!/usr/bin/env python3
"""Measures a trained demo model on the held-out documents.

    python3 evaluate.py --work WORK [--checkpoint FILE | --gguf FILE] [--curve OUT.png]

Prints tables in Markdown and writes WORK/evaluation.json: bits per byte by kind, beside xz -9e
alone and xz given the training text; the least used expert of each layer; the mutual information
between kind of text and expert, beside the same with shuffled labels.
"""

import argparse
import json
import pathlib
import subprocess

import numpy as np
import torch
import torch.multiprocessing as mp

import export
import vocabulary

WINDOW = 1024
STEP = 896                       # every scored token but the first ones sees 128 or more before it
BATCH = 4                        # windows at a time
PROCESSES = 2
SHUFFLES = 20


# ---- the model --------------------------------------------------------------------------------

def windows_of(stream):
    """(inputs, targets, first scored position) of windows that score each token once.

    The stream is scored as if an <|endoftext|> came before it.
    """
    whole = np.concatenate([[vocabulary.END_OF_TEXT], stream.astype(np.int64)])
    start = 0
    while start < len(stream):
        end = min(start + STEP, len(stream))
        begin = max(0, end - WINDOW)
        yield whole[begin:end], whole[begin + 1:end + 1], start - begin
        start = end


def batches_of(windows):
    """Runs of up to BATCH windows of one shape."""
    batch = []
    for window in windows:
        if batch and (len(batch) == BATCH or len(window[0]) != len(batch[0][0])
                      or window[2] != batch[0][2]):
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def score(model, batch):
    """(nats, [counts[layer, expert] of every window]) over the scored parts of a batch."""
    inputs, targets = (torch.from_numpy(np.stack([w[i] for w in batch])) for i in (0, 1))
    first = batch[0][2]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(inputs)[:, first:].float()
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             targets[:, first:].reshape(-1), reduction="sum")
    counts = np.zeros((len(batch), model.c.layers, model.c.experts), dtype=np.int64)
    for layer, block in enumerate(model.blk):
        chosen = block.ffn.chosen.view(*inputs.shape, -1)[:, first:]
        for i in range(len(batch)):
            counts[i, layer] = torch.bincount(chosen[i].reshape(-1), minlength=model.c.experts)
    return loss.item(), list(counts)


def load(source):
    """A model from a checkpoint, or from a GGUF file with its weights dequantised."""
    if source.suffix == ".gguf":
        return load_gguf(source)
    return export.load_model(source)


def load_gguf(path):
    import gguf
    from model import Config, Model
    model = Model(Config()).eval()
    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    names = {name: key for (name, _), key in zip(export.gguf_tensors(model), model.state_dict())}
    model.load_state_dict({names[n]: torch.from_numpy(np.array(v)) for n, v in tensors.items()})
    return model


def score_share(job):
    """One process's share of the windows of every kind."""
    source, folder, limit, part, parts = job
    torch.set_num_threads(1)
    model = load(source)
    out = []
    for path in sorted(folder.glob("*.npy")):
        windows = list(windows_of(np.load(path)[:limit]))
        for batch in batches_of(windows[part::parts]):
            out.append((path.stem, *score(model, batch)))
    return out


def score_all(source, folder, limit):
    """{kind: nats}, and the expert counts of every window with its kind."""
    nats, labels, counts = {}, [], []
    with mp.get_context("spawn").Pool(PROCESSES) as pool:
        jobs = [(source, folder, limit, part, PROCESSES) for part in range(PROCESSES)]
        for kind, loss, used in sum(pool.map(score_share, jobs), []):
            nats[kind] = nats.get(kind, 0.0) + loss
            labels += [kind] * len(used)
            counts += used
    return nats, np.array(labels), np.stack(counts)


# ---- compression ------------------------------------------------------------------------------

def xz_size(content):
    return len(subprocess.run(["xz", "-9e", "-c"], input=content, capture_output=True,
                              check=True).stdout)


def xz_figures(work, kinds):
    """{kind: (bytes, xz alone, xz of training and held-out text less xz of training text)}."""
    store = work / "xz.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    for kind in kinds:
        if kind not in known:
            held = (work / f"corpus/heldout/{kind}.txt").read_bytes().replace(b"\0", b"")
            train = (work / f"corpus/train/{kind}.txt").read_bytes().replace(b"\0", b"")
            known[kind] = (len(held), xz_size(held), xz_size(train + held) - xz_size(train))
            store.write_text(json.dumps(known))
    return known


# ---- routing ----------------------------------------------------------------------------------

def mutual_information(labels, counts):
    """Bits between kind and chosen expert, for every layer."""
    table = np.stack([counts[labels == kind].sum(0) for kind in np.unique(labels)])
    joint = table.transpose(1, 0, 2) / table.sum((0, 2))[:, None, None]
    independent = joint.sum(2, keepdims=True) * joint.sum(1, keepdims=True)
    ratio = np.where(joint > 0, joint / np.maximum(independent, 1e-300), 1.0)
    return (joint * np.log2(ratio)).sum((1, 2))


def routing_figures(labels, counts):
    """Labels are shuffled over whole windows: a window's tokens stay together, so what one
    document's topic alone would give is in the shuffled figure too."""
    rng = np.random.default_rng(5)
    shuffled = np.mean([mutual_information(rng.permutation(labels), counts)
                        for _ in range(SHUFFLES)], axis=0)
    real = mutual_information(labels, counts)
    share = counts.sum(0) / counts.sum((0, 2))[:, None]
    return [{"layer": i, "least_share": float(share[i].min()), "most_share": float(share[i].max()),
             "information": float(real[i]), "shuffled": float(shuffled[i])}
            for i in range(len(real))]


# ---- reports ----------------------------------------------------------------------------------

def print_tables(result):
    print("| kind | held-out bytes | model | xz -9e | xz given training text |")
    print("|---|---:|---:|---:|---:|")
    for kind, r in result["bits_per_byte"].items():
        print(f"| {kind} | {r['bytes']} | {r['model']:.3f} | {r['xz']:.3f} | "
              f"{r['xz_given_training']:.3f} |")
    print("\n| layer | least used expert | most used expert | information | shuffled | ratio |")
    print("|---:|---:|---:|---:|---:|---:|")
    for r in result["routing"]:
        print(f"| {r['layer']} | {100 * r['least_share']:.2f} % | {100 * r['most_share']:.2f} % | "
              f"{r['information']:.4f} | {r['shuffled']:.4f} | "
              f"{r['information'] / max(r['shuffled'], 1e-9):.0f} |")


def evaluate(work, source, tokens_a_kind=None):
    nats, labels, counts = score_all(source, work / "tokens/heldout", tokens_a_kind)
    result = {"source": source.name, "routing": routing_figures(labels, counts),
              "bits_per_byte": {}}
    kinds = sorted(nats)
    if tokens_a_kind is None:
        compressed = xz_figures(work, kinds)
        for kind in kinds:
            size, alone, given = compressed[kind]
            result["bits_per_byte"][kind] = {
                "bytes": size, "model": nats[kind] / np.log(2) / size,
                "xz": 8 * alone / size, "xz_given_training": 8 * given / size}
    name = "evaluation.json" if source.suffix == ".pt" else f"evaluation-{source.stem}.json"
    (work / name).write_text(json.dumps(result, indent=1))
    print_tables(result)
    return result


def draw_curve(history_path, out):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    entries = [json.loads(line) for line in open(history_path)]
    steps = [e for e in entries if "loss" in e]
    checks = [e for e in entries if "heldout" in e]
    million = 1e6
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    smooth, values = None, []
    for e in steps:
        smooth = e["loss"] if smooth is None else 0.96 * smooth + 0.04 * e["loss"]
        values.append(smooth)
    axes.plot([e["tokens"] / million for e in steps], values, color="#999999", linewidth=1,
              label="training, all kinds (smoothed)")
    for kind in checks[0]["heldout"]:
        axes.plot([e["tokens"] / million for e in checks], [e["heldout"][kind] for e in checks],
                  marker="o", markersize=3, linewidth=1.2, label=f"held-out {kind}")
    fall = next((e["tokens"] / million for e in steps if e["context"] == 1024), None)
    if fall:
        axes.axvline(fall, color="black", linestyle=":", linewidth=1)
        axes.text(fall, axes.get_ylim()[1], " learning rate falls", va="top", fontsize=8)
    axes.set_xlabel("million tokens")
    axes.set_ylabel("nats a token")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path, help="default: WORK/final.pt")
    parser.add_argument("--gguf", type=pathlib.Path, help="measure this file instead")
    parser.add_argument("--curve", type=pathlib.Path, help="draw the training curve here")
    parser.add_argument("--only", choices=["xz", "curve"], help="do just this part")
    args = parser.parse_args()
    if args.only == "xz":
        kinds = [p.stem for p in sorted((args.work / "tokens/heldout").glob("*.npy"))]
        print(xz_figures(args.work, kinds))
    elif args.only != "curve":
        evaluate(args.work, args.gguf or args.checkpoint or args.work / "final.pt")
    if args.curve:
        draw_curve(args.work / "history.jsonl", args.curve)


if __name__ == "__main__":
    main()
