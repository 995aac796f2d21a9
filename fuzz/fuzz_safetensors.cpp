// SPDX-License-Identifier: Apache-2.0
// safetensors: bytes are refused by FormatError, or every array survives being written and read.
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Arrays arrays;
  try {
    arrays = parse_safetensors(fuzz::bytes(data, size), "input");
  } catch (const FormatError&) {
    return 0;
  }
  const Arrays again = parse_safetensors(safetensors_bytes(arrays, {{"k", "v"}}), "written");
  fuzz::law(again.size() == arrays.size(), "no array is lost");
  for (const auto& [name, a] : arrays) {
    const auto at = again.find(name);
    fuzz::law(at != again.end() && a.dtype == at->second.dtype && a.shape == at->second.shape &&
                  a.bytes == at->second.bytes,
              "parse(safetensors_bytes(x)) == x");
  }
  return 0;
}
