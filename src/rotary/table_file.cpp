// SPDX-License-Identifier: Apache-2.0
// Tables in files: cos_sin [positions, columns] in .npy or .safetensors, mapped back.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "core/known_enum.h"
#include "core/row_layout.h"
#include "io/npy.h"
#include "posenc/core/error.h"
#include "posenc/core/isa.h"
#include "posenc/core/printable.h"
#include "posenc/io/array.h"
#include "posenc/io/safetensors_edit.h"
#include "rotary/rows.h"
#include "rotary/table_state.h"

namespace posenc::inline v0 {
namespace {

using detail::row_layout;
using detail::RowLayout;
using detail::TableVersion;

constexpr std::string_view kName = "cos_sin";

std::string hex(std::uint64_t x) {
  char text[17];
  const auto end = std::to_chars(text, text + sizeof text, x, 16);
  return std::string(text, end.ptr);
}

// `values` cosines and sines of a row, from one layout into another.
void lay_out(const std::byte* from, const RowLayout& has, std::byte* to, const RowLayout& wants,
             Index values, Index size) {
  const auto put = [&](Index column, Index found) {
    std::memcpy(to + column * size, from + found * size, static_cast<std::size_t>(size));
  };
  for (Index m = 0; m < values; ++m)
    for (const bool sine : {false, true}) {
      const Index found = has.step * m + (sine ? has.sine : 0);
      const Index column = wants.step * m + (sine ? wants.sine : 0);
      put(column, found);
      if (wants.copy != 0) put(column + wants.copy, found);
    }
}

Array laid_out(const TableVersion& v, Index rows, TableLayout layout) {
  const auto row_of = [&](const RotaryBlock& b, TableLayout l) {
    return row_layout(l, b.spectrum.heads * b.pairs());  // heads side by side
  };
  const Index size = size_of(v.dtype);
  Index columns = 0;
  for (const RotaryBlock& b : v.spec.blocks) columns += row_of(b, layout).columns;
  Array a = make_array(v.dtype, {rows, columns});
  if (layout == v.layout) {
    if (!a.bytes.empty()) std::memcpy(a.bytes.data(), v.base, a.bytes.size());
    return a;
  }
  const std::byte* from = v.base;
  std::byte* to = a.bytes.data();
  for (Index r = 0; r < rows; ++r)
    for (const RotaryBlock& b : v.spec.blocks) {
      const RowLayout has = row_of(b, v.layout), wants = row_of(b, layout);
      lay_out(from, has, to, wants, b.spectrum.heads * b.pairs(), size);
      from += has.columns * size, to += wants.columns * size;
    }
  return a;
}

// Where the rows lie in a file, and of what kind.
struct Place {
  DType dtype = DType::f32;
  TableLayout layout = TableLayout::half;
  Index rows = 0, columns = 0;
  std::size_t offset = 0;
};

void check_place(const Place& p, std::size_t bytes, const std::string& file) {
  Index row = 0, all = 0;
  if (__builtin_mul_overflow(p.columns, size_of(p.dtype), &row) ||
      __builtin_mul_overflow(p.rows, row, &all) || static_cast<std::size_t>(all) != bytes)
    throw FormatError(file, "#", "the data must be just as long as the shape needs");
  if (p.offset % static_cast<std::size_t>(size_of(p.dtype)) != 0)
    throw FormatError(file, "#", "the data must be aligned to their type");
}

std::string_view metadata(const SafetensorsIndex& index, const std::string& key) {
  const Json* value = index.header.at_pointer("/__metadata__/" + key);
  if (value == nullptr || !value->is_string())
    throw FormatError(index.file, "#/__metadata__",
                      "is not a table of posenc: " + key + " is missing");
  return value->as_string();
}

Place find_safetensors(std::span<const std::byte> bytes, const std::string& file,
                       const std::string& hash) {
  const SafetensorsIndex index = index_safetensors(bytes, file);
  const std::string_view built = metadata(index, "posenc.rows");
  if (built != hash)
    refuse("rotary table", "the file must have been built from this spec, whose rows are " + hash,
           built);
  const std::string_view layout = metadata(index, "posenc.layout");
  const SafetensorsEntry* entry = index.find(kName);
  if (entry == nullptr || entry->shape.size() != 2)
    throw FormatError(file, "#/cos_sin", "must be a tensor of two axes");
  Place p;
  const auto& layouts = EnumNames<TableLayout>::value;
  const auto named = std::find(layouts.begin(), layouts.end(), layout);
  if (named == layouts.end())
    throw FormatError(file, "#/__metadata__/posenc.layout",
                      "must be a layout of rows, got " + std::string(layout));
  p.layout = static_cast<TableLayout>(named - layouts.begin());
  const std::string& type = entry->dtype;
  if (type != "F32" && type != "F16" && type != "BF16")
    throw FormatError(file, "#/cos_sin/dtype", "must be F32, F16 or BF16, got " + printable(type));
  p.dtype = type == "F32" ? DType::f32 : type == "F16" ? DType::f16 : DType::bf16;
  p.rows = entry->shape[0], p.columns = entry->shape[1];
  p.offset = static_cast<std::size_t>(entry->data.data() - bytes.data());
  check_place(p, entry->data.size(), file);
  return p;
}

Place find_npy(std::span<const std::byte> bytes, const std::string& file) {
  const detail::NpyHeader header = detail::npy_header(bytes, file);
  if (header.descr != "<f4" && header.descr != "<f2")
    throw FormatError(file, "descr", "must be little-endian float32 or float16, <f4 or <f2");
  if (header.fortran_order) throw FormatError(file, "fortran_order", "must be False");
  if (header.shape.size() != 2) throw FormatError(file, "shape", "must have two axes");
  Place p;
  p.dtype = header.descr == "<f4" ? DType::f32 : DType::f16;
  p.rows = header.shape[0], p.columns = header.shape[1];
  p.offset = header.offset;
  check_place(p, bytes.size() - header.offset, file);
  return p;
}

// Some rows made anew: .npy keeps no hash, and a file may be damaged.
void check_sample(const RotarySpec& spec, const Place& p, const std::byte* base,
                  const std::string& file) {
  detail::TableVersion v;
  detail::describe_version(v, spec, p.dtype, p.layout);
  if (v.columns != p.columns)
    refuse("rotary table",
           "the file must have the columns of the spec in layout " +
               std::string(enum_text(p.layout)) + ", " + std::to_string(v.columns),
           p.columns);
  const Index row = p.columns * size_of(p.dtype);
  const Index blocks[] = {0, p.rows / 2, p.rows - 16};
  for (const Index at : blocks) {
    const Index begin = std::max<Index>(0, at), end = std::min(p.rows, begin + 16);
    if (begin >= end) continue;
    // rows of a run are made from the run's first: compare as numbers, within two roundings
    v.memory =
        detail::Reservation(static_cast<std::size_t>(std::max<Index>(1, (end - begin) * row)));
    v.memory.commit(v.memory.size());
    detail::build_rows(v, begin, end, v.memory.data(), inline_executor());
    const Index shape[] = {end - begin, p.columns};
    const auto as_doubles = [&](const std::byte* from) {
      return make_array(tensor(static_cast<const void*>(from), p.dtype, shape)).doubles();
    };
    const auto want = as_doubles(v.memory.data());
    const auto got = as_doubles(base + begin * row);
    const double unit = p.dtype == DType::f32 ? 1.2e-7 : p.dtype == DType::f16 ? 1e-3 : 8e-3;
    for (std::size_t i = 0; i < want.size(); ++i)
      if (!(std::abs(got[i] - want[i]) <= unit * std::max(1.0, std::abs(want[i]))))
        refuse("rotary table",
               "the file must have been built from this spec (row " +
                   std::to_string(begin + static_cast<Index>(i) / p.columns) + " of " + file +
                   " should be " + number_text(want[i]) + ")",
               got[i]);
  }
}

}  // namespace

void RotaryTable::save(const FilePath& given, TableLayout layout) const {
  const std::filesystem::path path(given.string());
  const detail::TableStore::Pin v(*state_->store);
  const std::string ending = path.extension().string();
  if (ending != ".npy" && ending != ".safetensors")
    refuse("rotary table", "the file's name must end in .npy or .safetensors", path.string());
  detail::check_known("rotary table", "layout", layout);
  const Array a = laid_out(*v, v->size.load(std::memory_order_acquire), layout);
  if (ending == ".npy") return write_npy(path, a);
  write_safetensors(path, {{std::string(kName), a}},
                    {{"posenc.rows", hex(detail::rows_hash(v->spec))},
                     {"posenc.layout", std::string(enum_text(layout))}});
}

RotaryTable RotaryTable::map(const FilePath& given, const RotarySpec& spec, BeyondTable beyond,
                             std::optional<TableLayout> layout) {
  const std::filesystem::path path(given.string());
  check_rotary(spec);
  detail::check_known("rotary table", "beyond", beyond);
  if (layout) detail::check_known("rotary table", "layout", *layout);
  MappedFile file(path);
  const std::string name = path.string();
  const bool npy = path.extension() == ".npy";
  Place p = npy ? find_npy(file.bytes(), name)
                : find_safetensors(file.bytes(), name, hex(detail::rows_hash(spec)));
  if (npy) p.layout = layout.value_or(TableLayout::half);
  if (p.layout != layout.value_or(p.layout))
    refuse(
        "rotary table",
        "the layout of " + name + " must be the requested one, " + std::string(enum_text(*layout)),
        enum_text(p.layout));
  const std::byte* base = file.bytes().data() + p.offset;
  check_sample(spec, p, base, name);
  return RotaryTable(std::make_shared<detail::RotaryTableState>(spec, p.rows, p.dtype, p.layout,
                                                                beyond, std::move(file), base));
}

}  // namespace posenc::v0
