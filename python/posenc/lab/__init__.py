# SPDX-License-Identifier: Apache-2.0
"""The lab: train small Transformers with any position encoding, test them on longer texts, compare.

`python -m posenc.lab --help` lists the commands. Needs PyTorch 2: `pip install posenc[lab]`. `import posenc` never loads it.
"""
