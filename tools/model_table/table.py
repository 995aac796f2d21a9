# SPDX-License-Identifier: Apache-2.0
"""The table of model types, as src/model/data/hugging_face/models has it."""
import json
import pathlib

root = pathlib.Path(__file__).resolve().parent.parent.parent


def model_types() -> dict:
    files = sorted((root / "src/model/data/hugging_face/models").glob("*.json"))
    return {name: entry for file in files for name, entry in json.loads(file.read_text()).items()}
