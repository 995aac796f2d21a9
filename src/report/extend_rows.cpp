// SPDX-License-Identifier: Apache-2.0
#include "extend_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "enum_words.h"

namespace posenc::report {
namespace {

constexpr double kMostSize = 1e9;

// One or two numbers; none where the text is anything else.
std::vector<double> numbers(std::string_view text) {
  std::vector<double> list;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find('x', from), text.size());
    double n = 0;
    const auto [end, error] = std::from_chars(text.data() + from, text.data() + to, n);
    if (error != std::errc{} || end != text.data() + to || list.size() == 2) return {};
    list.push_back(n);
    from = to + 1;
  }
  return list;
}

}  // namespace

std::vector<Index> sizes(std::string_view option, std::string_view text, double low) {
  const std::vector<double> given = numbers(text);
  std::vector<Index> list;
  for (const double n : given)
    if (n >= low && n <= kMostSize && n == std::floor(n)) list.push_back(static_cast<Index>(n));
  if (given.empty() || list.size() != given.size())
    throw UsageError(
        fmt::format("{} must be N or HxW, whole numbers from {:.0f} to {:.0f}, got \"{}\"", option,
                    low, kMostSize, text));
  return list;
}

namespace {

Extension extension_of(const ExtendOptions& o) {
  Extension e;
  e.how = enum_word<ExtendHow>("--how", o.how);
  e.align_corners = o.align_corners;
  e.antialias = o.antialias;
  e.a = o.a;
  if (!o.border.empty()) e.border = enum_word<ResizeBorder>("--border", o.border);
  e.offset = o.offset;
  e.alpha = o.alpha.value_or(e.alpha);
  if (!o.scale.empty()) {
    const std::vector<double> s = numbers(o.scale);
    if (s.empty())
      throw UsageError("--scale must be one number, or two as AxB, got \"" + o.scale + "\"");
    const bool line = is_one_axis(e.how);
    if (line && s.size() > 1) throw UsageError("--scale of a line must be one number");
    for (const double factor : s)
      if (!std::isfinite(factor) || factor <= 0)
        throw UsageError("--scale must be finite and positive, got \"" + o.scale + "\"");
    e.scale_y = s[0];
    if (!line) e.scale_x = s.back();
  }
  const bool hierarchical = e.how == ExtendHow::hierarchical;
  if (o.alpha && !hierarchical) throw UsageError("--alpha belongs to --how hierarchical");
  if (!(e.alpha > 0 && e.alpha < 1) || e.alpha == 0.5)
    throw UsageError(
        fmt::format("--alpha must lie between 0 and 1 and not be 1/2, got {}", e.alpha));
  if (o.a && e.how != ExtendHow::bicubic) throw UsageError("--keys belongs to --how bicubic");
  if ((o.a && !std::isfinite(*o.a)) || !std::isfinite(o.offset))
    throw UsageError("--keys and --offset must be finite");
  if (o.align_corners && (o.offset != 0 || e.scale_y))
    throw UsageError("--align-corners computes points from the sizes: omit --offset and --scale");
  if (e.border == ResizeBorder::extrapolate && e.how != ExtendHow::stretch)
    throw UsageError("--border extrapolate belongs to --how stretch");
  if (e.how == ExtendHow::stretch) {
    if (o.align_corners || o.antialias || o.offset != 0 || e.border == ResizeBorder::renormalise)
      throw UsageError(
          "--how stretch has --scale and --border repeat or extrapolate, and none of "
          "--align-corners, --antialias, --offset, --border renormalise");
    return e;
  }
  if (!hierarchical && e.how != ExtendHow::geometric && e.how != ExtendHow::tile) return e;
  if (o.align_corners || o.antialias || o.a || !o.border.empty() || o.offset != 0 || e.scale_y)
    throw UsageError(fmt::format(
        "--how {} has none of --align-corners, --antialias, --keys, --border, --offset, --scale",
        o.how));
  return e;
}

// How far apart two names are: insertions, deletions, changes.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

const SafetensorsEntry& tensor_named(const SafetensorsIndex& index, const std::string& name) {
  if (const SafetensorsEntry* e = index.find(name)) return *e;
  struct Near {
    std::size_t far;
    const SafetensorsEntry* entry;
  };
  std::vector<Near> near;
  for (const SafetensorsEntry& e : index.tensors) {
    const bool inside = e.name.find(name) != std::string::npos;
    const bool position = e.name.find("pos") != std::string::npos && e.shape.size() >= 2;
    if (e.name.size() < 500 && name.size() < 500)
      near.push_back({inside ? 0 : distance(e.name, name) + (position ? 0 : 8), &e});
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.far < b.far; });
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(near.size(), 5); ++i)
    list += fmt::format("{}{} [{}]", i == 0 ? "" : ", ", near[i].entry->name,
                        fmt::join(near[i].entry->shape, ", "));
  throw InputError(fmt::format("{}: has no tensor \"{}\"; nearest: {}", index.file, name,
                               list.empty() ? "it has none at all" : list));
}

DType dtype_of_entry(const SafetensorsIndex& index, const SafetensorsEntry& e) {
  for (const auto& [word, type] : {std::pair{"F64", DType::f64}, std::pair{"F32", DType::f32},
                                   std::pair{"F16", DType::f16}, std::pair{"BF16", DType::bf16}})
    if (e.dtype == word) return type;
  throw InputError(fmt::format("{}: {} is {}: a table must be F64, F32, F16 or BF16", index.file,
                               e.name, e.dtype));
}

// Axes of the stored tensor: 1 (size one), t rows, y and x of a grid, c channels.
std::string order_of(const ExtendOptions& o, const SafetensorsEntry& e) {
  std::string order = o.order;
  const std::size_t rank = e.shape.size();
  if (order.empty()) {
    if (rank == 2) order = "tc";
    if (rank == 3 && e.shape[0] == 1) order = "1tc";
    if (rank == 4 && e.shape[0] == 1) order = "1yxc";
    if (order.empty())
      throw InputError(
          fmt::format("{} has shape [{}]: --order must name its axes (t rows, y and x of a grid, c "
                      "channels, 1 for size one), as in tc, 1tc, 1yxc, 1cyx",
                      e.name, fmt::join(e.shape, ", ")));
  }
  const auto count = [&](char c) { return std::count(order.begin(), order.end(), c); };
  const bool grid = count('y') == 1 && count('x') == 1 && count('t') == 0;
  const bool rows = count('t') == 1 && count('y') == 0 && count('x') == 0;
  if ((!grid && !rows) || count('c') != 1 ||
      count('1') + (grid ? 3 : 2) != static_cast<std::ptrdiff_t>(order.size()))
    throw UsageError("--order must have c, and t or y and x, once each, got \"" + order + "\"");
  if (order.size() != rank)
    throw InputError(fmt::format("--order {} has {} axes, {} has shape [{}]", order, order.size(),
                                 e.name, fmt::join(e.shape, ", ")));
  for (std::size_t i = 0; i < rank; ++i) {
    if (order[i] == '1' && e.shape[i] != 1)
      throw InputError(
          fmt::format("axis {} of {} must have size 1, got {}", i, e.name, e.shape[i]));
    if (e.shape[i] < 1) throw InputError(fmt::format("{} has an axis of size 0", e.name));
  }
  return order;
}

// What the rows are: told, or by the tensor's name.
TableRows table_rows_kind(const ExtendOptions& o, const SafetensorsEntry& e) {
  return o.rows.empty() ? table_rows_of(e.name) : enum_word<TableRows>("--rows", o.rows);
}

// Sizes that do not exist for such rows, and kept rows that no model has there.
void check_rows(const ExtendOptions& o, const SafetensorsEntry& e, const TableShape& from,
                const TableShape& to, TableRows rows) {
  const std::string why = o.rows.empty() ? fmt::format("the name of {} says that its rows are {}",
                                                       e.name, enum_text(rows))
                                         : fmt::format("--rows {}", o.rows);
  const char* other = "; --rows positions where each row is one position";
  if (rows == TableRows::buckets && (from.height != to.height || from.width != to.width))
    throw InputError(
        fmt::format("{}: buckets of distances cannot be resized, because they are no points of a "
                    "line: train the model with other buckets, or keep {}{}",
                    why, from.rows(), other));
  if (rows != TableRows::offsets) return;
  if (is_one_axis(enum_word<ExtendHow>("--how", o.how)) &&
      e.name.find("relative_position_bias_table") != std::string::npos)
    throw InputError(
        fmt::format("{}, of two axes: --how must be bilinear, bicubic or geometric, got {}{}", why,
                    o.how, other));
  if (from.prefix != 0)
    throw InputError(
        fmt::format("{}: a table of offsets has no rows in front, --prefix must be 0, got {} "
                    "(BEiT's three class rows are behind: --suffix 3){}",
                    why, from.prefix, other));
  for (const auto& [what, shape] : {std::pair{"the table has", from}, std::pair{"--to means", to}})
    if (shape.height % 2 == 0 || shape.width % 2 == 0)
      throw InputError(fmt::format(
          "{}: offsets within a window of N are 2 N - 1 on each axis, an odd number, and {} "
          "{}{}{}",
          why, what, shape.height,
          shape.width == 1 ? std::string() : fmt::format("x{}", shape.width), other));
}

// " (27x27 with --suffix 3: ...)": the kept rows that leave a square, where the tensor's name or
// the usual place of class tokens says on which side.
std::string kept_rows_hint(const ExtendOptions& o, const SafetensorsEntry& e, Index own,
                           TableRows rows) {
  const bool offsets = rows == TableRows::offsets;
  const bool last = offsets || e.name.find("positional_embedding_vlm") != std::string::npos;
  for (Index more = 1; more <= 8 && own > more; ++more) {
    const auto n = static_cast<Index>(std::sqrt(static_cast<double>(own - more)));
    if (n * n != own - more || (offsets && n % 2 == 0)) continue;
    return fmt::format(" ({}x{} with --{} {}: {}?)", n, n, last ? "suffix" : "prefix",
                       (last ? o.suffix : o.prefix) + more,
                       offsets ? "BEiT's class rows behind the offsets"
                       : last  ? "the class token of Llama 4's vision tower is last"
                               : "class and register rows in front");
  }
  return "";
}

Index size_at(const SafetensorsEntry& e, const std::string& order, char letter) {
  const std::size_t at = order.find(letter);
  return at == std::string::npos ? 1 : e.shape[at];
}

// What the rows are: told, a square, or refused with the way to say it.
TableShape shape_of(const ExtendOptions& o, const SafetensorsEntry& e, const std::string& order,
                    bool line, TableRows rows_are) {
  TableShape s;
  s.prefix = o.prefix, s.suffix = o.suffix;
  if (order.find('y') != std::string::npos) {
    if (line)
      throw InputError(fmt::format("{} is a grid: --how {} is for one axis", e.name, o.how));
    if (s.prefix != 0 || s.suffix != 0)
      throw UsageError("a tensor stored as a grid has no --prefix and no --suffix");
    s.height = size_at(e, order, 'y'), s.width = size_at(e, order, 'x');
    if (!o.grid.empty() && sizes("--grid", o.grid) != std::vector<Index>{s.height, s.width})
      throw InputError(
          fmt::format("{} stores a grid of {}x{}, not {}", e.name, s.height, s.width, o.grid));
    return s;
  }
  const Index rows = size_at(e, order, 't'), own = rows - s.prefix - s.suffix;
  if (own < 1)
    throw InputError(fmt::format("{} has {} rows: --prefix {} and --suffix {} leave no rows",
                                 e.name, rows, s.prefix, s.suffix));
  if (line) {
    if (!o.grid.empty()) throw UsageError(fmt::format("--grid is not for --how {}", o.how));
    s.height = own;
    return s;
  }
  if (!o.grid.empty()) {
    const std::vector<Index> g = sizes("--grid", o.grid);
    if (g.size() != 2) throw UsageError("--grid must be HxW, got \"" + o.grid + "\"");
    s.height = g[0], s.width = g[1];
    if (s.rows() != rows)
      throw InputError(fmt::format("{} has {} rows; --grid {} with {} kept rows makes {}", e.name,
                                   rows, o.grid, s.prefix + s.suffix, s.rows()));
    return s;
  }
  const auto side = static_cast<Index>(std::sqrt(static_cast<double>(own)));
  if (side * side == own) {
    s.height = s.width = side;
    return s;
  }
  throw InputError(
      fmt::format("{} has {} rows{}, which is not a square number{}: --grid HxW, --prefix N or "
                  "--suffix N must say what "
                  "they are",
                  e.name, own, s.prefix + s.suffix > 0 ? " beside those that are kept" : "",
                  kept_rows_hint(o, e, own, rows_are)));
}

}  // namespace

void move_elements(const std::string& order, const std::vector<Index>& stored_shape,
                   const TableShape& s, Index channels, std::size_t size, const std::byte* from,
                   std::byte* to, bool into_rows) {
  std::vector<Index> stride(order.size(), 1);
  for (std::size_t i = order.size(); i-- > 1;) stride[i - 1] = stride[i] * stored_shape[i];
  const auto step = [&](char c) {
    const std::size_t at = order.find(c);
    return at == std::string::npos ? Index{0} : stride[at];
  };
  const bool grid = order.find('y') != std::string::npos;
  for (Index r = 0; r < s.rows(); ++r)
    for (Index c = 0; c < channels; ++c) {
      const Index place = grid ? r / s.width * step('y') + r % s.width * step('x') : r * step('t');
      const auto stored = static_cast<std::size_t>(place + c * step('c')) * size;
      const auto row = static_cast<std::size_t>(r * channels + c) * size;
      std::memcpy(to + (into_rows ? row : stored), from + (into_rows ? stored : row), size);
    }
}

ExtendedRows extended_rows(const SafetensorsIndex& index, const ExtendOptions& o) {
  ExtendedRows x;
  x.how = extension_of(o);
  const bool line = x.line();
  const std::vector<Index> to_size = sizes("--to", o.to);
  if ((to_size.size() == 1) != line)
    throw UsageError(
        fmt::format("--how {} needs --to {}, got \"{}\"", o.how, line ? "N" : "HxW", o.to));
  if (o.prefix < 0 || o.suffix < 0) throw UsageError("--prefix and --suffix must not be negative");
  x.table = &tensor_named(index, o.tensor);
  const SafetensorsEntry& table = *x.table;
  x.dtype = dtype_of_entry(index, table);
  x.order = order_of(o, table);
  x.how.rows = table_rows_kind(o, table);
  x.from = shape_of(o, table, x.order, line, x.how.rows);
  // --to counts all rows of a line, as the file will store them; a grid without its kept rows.
  x.to = {to_size[0], line ? 1 : to_size[1], x.from.prefix, x.from.suffix};
  if (line) x.to.height -= x.to.prefix + x.to.suffix;
  if (x.to.height < 1)
    throw UsageError(fmt::format("--to {} leaves no rows besides those that are kept", o.to));
  check_rows(o, table, x.from, x.to, x.how.rows);
  x.channels = size_at(table, x.order, 'c');
  if (x.to.rows() > (Index{1} << 40) / x.channels)
    throw UsageError(
        fmt::format("--to {} with {} channels is more than 2^40 numbers", o.to, x.channels));
  const auto size = static_cast<std::size_t>(size_of(x.dtype));
  if (table.data.size() != static_cast<std::size_t>(x.from.rows() * x.channels) * size)
    throw InputError(fmt::format(
        "{}: {} must have {} bytes for its shape, got {}", index.file, table.name,
        static_cast<std::size_t>(x.from.rows() * x.channels) * size, table.data.size()));
  x.before = make_array(x.dtype, {x.from.rows(), x.channels});
  x.after = make_array(x.dtype, {x.to.rows(), x.channels});
  move_elements(x.order, table.shape, x.from, x.channels, size, table.data.data(),
                x.before.bytes.data(), true);
  const std::vector<double> values = x.before.doubles();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw InputError(fmt::format("{}: {} holds {} in row {}", index.file, table.name,
                                   short_number(values[i]),
                                   i / static_cast<std::size_t>(x.channels)));
  extend_table(x.before.view(), x.from, x.after.view(), x.to, x.how);
  return x;
}

}  // namespace posenc::report
