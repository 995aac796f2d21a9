// SPDX-License-Identifier: Apache-2.0
// The part of XLA's foreign function interface that a handler on a CPU needs, version 0.3: a C
// interface whose structs begin with their size. Declared here so that the package is built without
// jaxlib and runs with any that has this version; python/tests/jax compares every offset with
// jaxlib's own header (xla/ffi/api/c_api.h).
#pragma once
#include <cstddef>
#include <cstdint>

namespace posenc::python::xla {

inline constexpr int kMajor = 0, kMinor = 3;

struct Extension {
  std::size_t struct_size;
  int type;  // 1: metadata are asked for
  Extension* next;
};
inline constexpr int kMetadata = 1;

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major_version, minor_version;
};
struct Metadata {
  std::size_t struct_size;
  Version version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;  // theirs
struct ErrorArguments {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};
inline constexpr int kInvalidArgument = 3, kResourceExhausted = 8;

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(ErrorArguments*);
  // What follows is not used.
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};
// Arguments, or results: all of type 1, a buffer.
struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  Buffer** buffers;
};
struct Text {
  const char* data;
  std::size_t size;
};
struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;  // 4: a text
  Text** names;
  void** values;
};
inline constexpr int kTextType = 4;

struct CallFrame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
};
inline constexpr int kExecute = 3;

using Handler = Error*(CallFrame*);

}  // namespace posenc::python::xla
