#!/usr/bin/env bash
# Test what `pip install livi` gives a user: the wheel and its dependencies in an empty environment, without extras.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" "$root"
"$folder/venv/bin/python" -m pip install --quiet -c "$root/constraints.txt" "$folder"/livi-*.whl
"$folder/venv/bin/python" -m pip list
cd "$folder" # elsewhere, so that the wheel is imported and not the sources
venv/bin/livi --help >help.txt
venv/bin/python "$root/scripts/first_fit.py"
venv/bin/livi bench toy --quick --methods map
if venv/bin/livi demo --quick; then
  echo "expected \`livi demo\` to ask for the extra plots, got a page: matplotlib came along" >&2
  exit 1
fi
