set -e
python3 kept/move/move.py
python3 kept/move/patch.py
.venv/bin/ruff check --select F401,I001 --fix -q companion tests book || true
.venv/bin/ruff format -q companion tests book
.venv/bin/ruff check --output-format concise companion tests book | tail -30 || true
