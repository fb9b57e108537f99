#!/bin/sh
# From a fresh clone to generated text in one command.
#
#   sh tools/demo.sh [MODEL [PROMPT]]      MODEL: a GGUF file or a container
#
# Without a prompt a text is continued; a prompt is one turn of a chat, where the model has a template.
# Without a model it takes one from models/, or else the golden model of the tests, which is made of
# random numbers: that shows that the engine runs, not what it can say. Any GGUF file of an architecture
# that `sluice --list-archs` names will do; they are found, for instance, on huggingface.co.
set -eu

case "${1:-}" in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "demo: unknown option $1; see --help" >&2
    exit 2
    ;;
esac
model=${1:-}
case "$model" in
'' | /*) ;;
*) model=$PWD/$model ;; # as the caller wrote it, not as seen from here
esac
prompt=${2:-}
cd "$(dirname "$0")/.."
golden=tests/golden/qwen3moe-Q8_0/model.gguf

if [ -z "$model" ]; then
    for candidate in models/sluice-demo.sluice models/*.sluice models/*.gguf; do
        if [ -f "$candidate" ]; then
            model=$candidate
            break
        fi
    done
fi
if [ -z "$model" ]; then
    model=$golden
    echo "demo: no model in models/; using $golden. Its weights are random, so its text is noise." >&2
    echo "demo: for text that means something, fetch a GGUF file of a model that runs here, such as" >&2
    echo "demo: OLMoE-1B-7B-0125-Instruct from huggingface.co, and name it: sh tools/demo.sh FILE.gguf" >&2
fi
if [ ! -f "$model" ]; then
    echo "demo: there is no file $model" >&2
    exit 1
fi

sh tools/install_deps.sh
mkdir -p build
echo "demo: building, about a minute; log in build/demo.log" >&2
if ! { cmake --preset release && cmake --build --preset release --target sluice_program; } >build/demo.log 2>&1; then
    cat build/demo.log >&2
    exit 1
fi
tokens=200
[ "$model" != "$golden" ] || tokens=32 # noise has no reason to end
mode=
[ -n "$prompt" ] || mode=--raw
prompt=${prompt:-Once upon a time}
case "$model" in
*sluice-demo.sluice) echo "demo: add --ram 14M to this line, and experts are read as they are needed:" >&2 ;;
esac
echo "demo: build/release/sluice run -m $model -n $tokens $mode -p \"$prompt\"" >&2
exec build/release/sluice run -m "$model" -n "$tokens" $mode -p "$prompt"
