// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file, for readers of the data where they lie.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<Index> shape;
  std::size_t offset = 0;  // of the data
};
// Throws FormatError; the data's length is not checked.
NpyHeader npy_header(std::span<const std::byte>, const std::string& file);
// Bytes of the file as far as those that begin it tell.
std::size_t npy_bound(std::span<const std::byte> have, const std::string& file);

}  // namespace posenc::v0::detail
