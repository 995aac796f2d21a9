// SPDX-License-Identifier: Apache-2.0
// .npy: bytes are refused by FormatError, or the array survives being written and read again.
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Array a;
  try {
    a = parse_npy(fuzz::bytes(data, size), "input");
  } catch (const FormatError&) {
    return 0;
  }
  const Array b = parse_npy(npy_bytes(a), "written");
  fuzz::law(a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes,
            "parse(npy_bytes(x)) == x");
  fuzz::law(static_cast<Index>(a.doubles().size()) == a.count(), "as many values as elements");
  return 0;
}
