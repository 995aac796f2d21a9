# SPDX-License-Identifier: Apache-2.0
# Compile flags of single kernel files (native entries of the kernel table).
