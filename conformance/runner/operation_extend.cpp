// SPDX-License-Identifier: Apache-2.0
// extend: a table of positions at another size, its gradient, and rows of packed images.
#include <algorithm>
#include <charconv>
#include <optional>

#include "conformance/runner/axes.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/rule.h"
#include "conformance/runner/tensors.h"
#include "posenc/absolute/extend.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// "7" or "6x4": one number or two.
std::vector<Index> sizes_of(std::string_view text) {
  std::vector<Index> sizes;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find('x', from), text.size());
    Index n = 0;
    const auto [end, error] = std::from_chars(text.data() + from, text.data() + to, n);
    if (error != std::errc{} || end != text.data() + to) refuse("case", "a size is N or HxW", text);
    sizes.push_back(n);
    from = to + 1;
  }
  if (sizes.size() > 2) refuse("case", "a size is N or HxW", text);
  return sizes;
}

TableShape layout_of(std::string_view size, Index prefix, Index suffix) {
  constexpr Index kMost = Index{1} << 24;  // of each
  const std::vector<Index> sizes = sizes_of(size);
  const TableShape shape{sizes[0], sizes.size() > 1 ? sizes[1] : 1, prefix, suffix};
  for (const Index n : {shape.height, shape.width})
    if (n < 1 || n > kMost) refuse("case", "a size of a table must be 1 to 1048576", n);
  for (const Index n : {prefix, suffix})
    if (n < 0 || n > kMost) refuse("case", "prefix and suffix must be 0 to 1048576", n);
  return shape;
}

Extension extension_of(const std::string& text) {
  const Rule rule(text);
  Extension e;
  bool known = false;
  for (std::size_t i = 0; i < EnumNames<ExtendHow>::value.size(); ++i)
    if (EnumNames<ExtendHow>::value[i] == rule.name())
      e.how = static_cast<ExtendHow>(i), known = true;
  if (!known) refuse("case", "no such way to extend a table", rule.name());
  e.align_corners = rule.flag("align_corners");
  e.antialias = rule.flag("antialias");
  if (rule.has("a")) e.a = rule.number("a");
  if (rule.has("border")) e.border = rule.choice("border", ResizeBorder::repeat);
  e.offset = rule.number("offset", e.offset);
  if (rule.has("scale_y")) e.scale_y = rule.number("scale_y");
  if (rule.has("scale_x")) e.scale_x = rule.number("scale_x");
  e.alpha = rule.number("alpha", e.alpha);
  rule.all_used();
  return e;
}

// An array as tables [rows, channels], one a batch entry.
struct Tables {
  std::vector<double> values;
  Index batch = 1, rows = 0, channels = 0;
  TensorView view(Index b) { return tensor(values.data() + b * rows * channels, {rows, channels}); }
};

Axes table_axes(const Check& check, const Slice& s) {
  const char* usual[] = {"", "d", "td", "btd", "bttd"};
  return {s.shape, letters_of(check, s, usual[std::min<std::size_t>(s.shape.size(), 4)]), {}};
}

Tables tables_of(const Check& check, const Slice& s) {
  const Axes axes = table_axes(check, s);
  Tables t;
  t.batch = axes['b'].size, t.rows = axes['t'].size, t.channels = axes['d'].size;
  const std::vector<double> values = s.values();
  for (const Index i : axes.walk("btd")) t.values.push_back(values[static_cast<std::size_t>(i)]);
  return t;
}

void expect_tables(Check& check, const Slice& want, const Tables& got) {
  const Axes axes = table_axes(check, want);
  if (axes['b'].size != got.batch || axes['t'].size != got.rows || axes['d'].size != got.channels)
    refuse("case", "the result has another shape than " + want.text);
  const std::vector<Index> to = axes.walk("btd");
  std::vector<double> ordered(to.size());
  for (std::size_t i = 0; i < to.size(); ++i)
    ordered[static_cast<std::size_t>(to[i])] = got.values[i];
  check.expect(want, ordered);
}

void run_packed(Check& check, const TableShape& from, const Extension& e) {
  std::vector<VisionGrid> images;
  const std::vector<double> thw = check.input("grids").values();
  for (std::size_t i = 0; i + 2 < thw.size(); i += 3)
    images.push_back({static_cast<Index>(thw[i]), static_cast<Index>(thw[i + 1]),
                      static_cast<Index>(thw[i + 2]), 1});
  const auto merge = check.integer("merge", 1);
  Tables table = tables_of(check, check.input("table"));
  Tables out{{}, 1, 0, table.channels};
  for (const VisionGrid& g : images) out.rows += g.frames * g.rows * g.columns;
  out.values.resize(static_cast<std::size_t>(out.rows * out.channels));
  extend_packed(table.view(0), from, images, merge, out.view(0), e);
  check.expect("rows", out.values, {out.rows, out.channels});
}

TableShape old_shape(const Check& check) {
  const Rule scheme(check.text("scheme"));
  if (scheme.name() != "learned")
    refuse_field("case", "extend", "needs a learned table", scheme.name());
  const TableShape from =
      layout_of(scheme.word("grid"), scheme.integer("prefix", 0), scheme.integer("suffix", 0));
  scheme.all_used();
  return from;
}

// What `extended` says of a parameter: scheme, to and how, as the operation.
struct Carried {
  TableShape from, to;
  Extension how;
};
std::optional<Carried> carried(const Check& check, std::string_view name) {
  const Json* words = check.member("extended", name);
  if (words == nullptr) return {};
  const Check own(check.in_case, *words);
  Carried c;
  c.from = old_shape(own);
  c.to = layout_of(own.text("to"), c.from.prefix, c.from.suffix);
  c.how = extension_of(own.text("how"));
  if (!own.unread().empty()) refuse("case", "extended has no such member", own.unread());
  return c;
}

}  // namespace

Array extended(const Check& check, std::string_view name, const Array& a) {
  const std::optional<Carried> c = carried(check, name);
  if (!c) return a;
  const Index channels = a.view().count() / c->from.rows();
  Tables table{a.doubles(), 1, c->from.rows(), channels}, out{{}, 1, c->to.rows(), channels};
  out.values.resize(static_cast<std::size_t>(out.rows * channels));
  extend_table(table.view(0), c->from, out.view(0), c->to, c->how);
  return make_array(tensor(std::span<const double>(out.values)));
}

std::vector<double> extended_gradient(const Check& check, std::string_view name,
                                      std::vector<double> d) {
  const std::optional<Carried> c = carried(check, name);
  if (!c) return d;
  const Index channels = static_cast<Index>(d.size()) / c->to.rows();
  Tables grad{std::move(d), 1, c->to.rows(), channels}, out{{}, 1, c->from.rows(), channels};
  out.values.resize(static_cast<std::size_t>(out.rows * channels));
  extend_gradient(grad.view(0), c->to, out.view(0), c->from, c->how);
  return out.values;
}

void run_extend(Check& check) {
  const TableShape from = old_shape(check);
  const Extension e = extension_of(check.text("how"));
  if (check.array_name("in", "grids") != nullptr) return run_packed(check, from, e);
  const TableShape to = layout_of(check.text("to"), from.prefix, from.suffix);
  if (const std::string* name = check.array_name("out", "table")) {
    Tables table = tables_of(check, check.input("table"));
    Tables out{{}, table.batch, to.rows(), table.channels};
    out.values.resize(static_cast<std::size_t>(out.batch * out.rows * out.channels));
    for (Index b = 0; b < table.batch; ++b) extend_table(table.view(b), from, out.view(b), to, e);
    expect_tables(check, slice(check.in_case, *name), out);
  }
  if (const std::string* name = check.array_name("out", "grad_table")) {
    Tables grad = tables_of(check, check.input("grad_out"));
    Tables out{{}, grad.batch, from.rows(), grad.channels};
    out.values.resize(static_cast<std::size_t>(out.batch * out.rows * out.channels));
    for (Index b = 0; b < grad.batch; ++b) extend_gradient(grad.view(b), to, out.view(b), from, e);
    expect_tables(check, slice(check.in_case, *name), out);
  }
}

}  // namespace posenc::conformance
