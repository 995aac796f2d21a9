// SPDX-License-Identifier: Apache-2.0
// An owning dense array, and files of them.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

struct Array {
  DType dtype = DType::f32;
  std::vector<Index> shape;      // any rank; view() rejects more than 5 axes
  std::vector<std::byte> bytes;  // row-major, little-endian

  POSENC_API Index count() const;
  POSENC_API TensorView view() POSENC_LIFETIME_BOUND;
  POSENC_API ConstTensorView view() const POSENC_LIFETIME_BOUND;  // read-only
  POSENC_API std::vector<double> doubles() const;                 // every dtype, widened
  POSENC_API std::vector<Index> integers() const;                 // rejects fractions
};
POSENC_API Array make_array(DType, std::vector<Index> shape);  // zeros
POSENC_API Array make_array(const ConstTensorView&);           // dense copy

using Arrays = std::map<std::string, Array>;

// read_npy and read_safetensors read from a pipe or device as many bytes as the header states, at most
// 16 GiB.
// .npy versions 1 to 3, C or Fortran order, both byte orders. Throws FormatError.
POSENC_API Array read_npy(const std::filesystem::path&);
// bf16 is rejected: .npy has no such type. Written to a temporary file and renamed.
POSENC_API void write_npy(const std::filesystem::path&, const Array&);
POSENC_API std::vector<std::byte> npy_bytes(const Array&);

// safetensors: 8-byte header length, JSON, data. Every length is checked before it is used.
POSENC_API Arrays read_safetensors(const std::filesystem::path&);
POSENC_API void write_safetensors(const std::filesystem::path&, const Arrays&,
                                  const std::map<std::string, std::string>& metadata = {});
POSENC_API std::vector<std::byte> safetensors_bytes(
    const Arrays&, const std::map<std::string, std::string>& metadata = {});

// The same from memory, for fuzzers and pipes; errors name `file`.
POSENC_API Array parse_npy(std::span<const std::byte>, const std::string& file);
POSENC_API Arrays parse_safetensors(std::span<const std::byte>, const std::string& file);

// Whole file in memory, at most `limit` bytes, of a pipe or device too. Throws FormatError.
POSENC_API std::vector<std::byte> read_file(const std::filesystem::path&, std::size_t limit);
// Written to a temporary file beside it (.NAME.posenc-PID-N.part), flushed and renamed; on failure nothing is left.
// The next write of the same name removes what a killed process left; a lock protects the files of running processes.
// A file that is replaced keeps its mode; a symbolic link keeps pointing and what it points to is written, be it there
// or not. Pipes and devices are written through. Throws std::system_error. A pipe whose reader has closed it raises SIGPIPE, as write()
// does: a host that ignores the signal gets the exception.
POSENC_API void write_file_atomically(const std::filesystem::path&, std::span<const std::byte>);
// Removes the temporary files that are being written just now. Async-signal-safe: for a handler of SIGINT and SIGTERM
// that ends the process. The library installs none.
POSENC_API void remove_unfinished_files() noexcept;

}  // namespace posenc::v0
