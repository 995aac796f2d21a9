// SPDX-License-Identifier: Apache-2.0
// encode: what stands at the input, forward and backward.
#include <algorithm>

#include "conformance/runner/axes.h"
#include "conformance/runner/encoding.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/position_list.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc::conformance {

Array transposed(const Array& a, const std::vector<Index>& order) {
  if (order.size() != a.shape.size())
    refuse_field("case", "transpose", "must name every axis of the array",
                 static_cast<Index>(order.size()));
  std::vector<Index> shape, stride(a.shape.size(), 1);
  for (std::size_t n = a.shape.size(); n-- > 1;) stride[n - 1] = stride[n] * a.shape[n];
  std::vector<Index> step;
  for (const Index axis : order) {
    shape.push_back(a.shape.at(static_cast<std::size_t>(axis)));
    step.push_back(stride.at(static_cast<std::size_t>(axis)));
  }
  const std::vector<double> from = a.doubles();
  std::vector<double> to;
  std::vector<Index> at(shape.size(), 0);
  for (std::size_t n = 0; n < from.size(); ++n) {
    Index offset = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) offset += at[d] * step[d];
    to.push_back(from.at(static_cast<std::size_t>(offset)));
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  Array out = make_array(tensor(std::span<const double>(to)));
  out.shape = shape;
  return out;
}

std::vector<Index> transposed_axes(const Check& check, std::string_view name) {
  std::vector<Index> order;
  if (const Json* given = check.member("transpose", name))
    for (const Json& axis : given->as_array()) order.push_back(axis.as_integer());
  std::vector<Index> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t n = 0; n < sorted.size(); ++n)
    if (sorted[n] != static_cast<Index>(n))
      refuse_field("case", "transpose", "must name each axis once", sorted[n]);
  return order;
}

namespace {

// Of the check's member `parameters`: a number, a list, or "$name" for one of params.
Array written_parameter(const Check& check, const Json& given) {
  const Json value = given.is_string() ? check.in_case.parameter(given.as_string()) : given;
  std::vector<double> numbers;
  if (value.is_array())
    for (const Json& x : value.as_array()) numbers.push_back(x.as_number());
  else
    numbers.push_back(value.as_number());
  return make_array(tensor(std::span<const double>(numbers)));
}

std::size_t row_index(double row, Index rows) {
  if (!(row >= 0 && row < static_cast<double>(rows)))
    refuse("case", "a row must be one of the table", row);
  return static_cast<std::size_t>(row);
}

Array scattered_rows(const Array& rows, const Slice& at, const std::vector<Index>& shape) {
  std::vector<double> table(static_cast<std::size_t>(shape.at(0) * shape.at(1)), 0.0);
  const std::vector<double> from = rows.doubles();
  std::size_t next = 0;
  for (const double row : at.values())
    for (Index c = 0; c < shape[1]; ++c)
      table.at(row_index(row, shape[0]) * static_cast<std::size_t>(shape[1]) +
               static_cast<std::size_t>(c)) = from.at(next++);
  return make_array(tensor(std::span<const double>(table)));
}

}  // namespace

namespace {

Array one_or_several(const Check& check, const std::string& name) {
  const Json* given = check.member("in", name);
  if (given == nullptr || !given->is_array()) return dense(check.input(name), DType::f64);
  std::vector<double> all;
  for (const Json& one : given->as_array()) {
    const std::vector<double> part = slice(check.in_case, one.as_string()).values();
    all.insert(all.end(), part.begin(), part.end());
  }
  return make_array(tensor(std::span<const double>(all)));
}

}  // namespace

Given given_parameters(const Check& check, const std::vector<Parameter>& parameters) {
  Given given;
  for (const Parameter& p : parameters) {
    const Json* here = check.member("parameters", p.name);
    Array a = here == nullptr ? one_or_several(check, p.name) : written_parameter(check, *here);
    a = extended(check, p.name, a);
    if (const std::vector<Index> order = transposed_axes(check, p.name); !order.empty())
      a = transposed(a, order);
    // Some rows of a table, where `rows_at` names which: the others are zero.
    const Json* at = check.member("rows_at", p.name);
    if (at != nullptr) a = scattered_rows(a, slice(check.in_case, at->as_string()), p.shape);
    Index n = 1;
    for (const Index size : p.shape) n *= size;
    if (a.view().count() != n)
      refuse("case", "the array of a parameter must fill its shape", p.name);
    a.shape = p.shape;
    given.arrays.push_back(std::move(a));
  }
  for (Array& a : given.arrays) given.views.push_back(a.view());
  return given;
}

namespace {

// Tokens of an array, [b, t, d] row by row.
struct Tokens {
  Index batch = 1, tokens = 0, width = 0;
  std::vector<double> value;
  TensorView view() { return tensor(value.data(), {batch, tokens, width}); }
};

Axes axes_of(const Check& check, const Slice& s) {
  const char* usual[] = {"", "d", "td", "btd"};
  const std::size_t rank = s.shape.size();
  return Axes(s.shape, letters_of(check, s, rank < 4 ? usual[rank] : ""), {});
}

Tokens tokens_in(const Check& check, std::string_view ours) {
  const Slice s = check.input(ours);
  const Axes axes = axes_of(check, s);
  Tokens x{axes['b'].size, axes['t'].size, axes['d'].size, {}};
  const std::vector<double> values = s.values();
  for (const Index i : axes.walk("btd")) x.value.push_back(values[static_cast<std::size_t>(i)]);
  return x;
}

void expect_tokens(Check& check, std::string_view ours, const Tokens& got, const Slice& want) {
  const Axes axes = axes_of(check, want);
  if (axes['b'].size != got.batch || axes['t'].size != got.tokens || axes['d'].size != got.width)
    refuse("case", "the result has another shape than the array", ours);
  const std::vector<Index> to = axes.walk("btd");
  std::vector<double> ordered(to.size());
  for (std::size_t i = 0; i < to.size(); ++i)
    ordered[static_cast<std::size_t>(to[i])] = got.value[i];
  check.expect(want, ordered);
}

// x, or where `ids` are given the rows of x that they pick (x is then the table of embeddings).
struct Input {
  Tokens table, x;
  std::vector<Index> ids;
  bool given = false;
};
Input input_of(const Check& check) {
  Input in;
  in.given = check.array_name("in", "x") != nullptr;
  if (!in.given) return in;
  in.x = tokens_in(check, "x");
  if (check.array_name("in", "ids") == nullptr) return in;
  in.table = std::move(in.x);
  const Slice s = check.input("ids");
  const Axes axes(s.shape, letters_of(check, s, s.shape.size() == 2 ? "bt" : "t"), {});
  const std::vector<double> ids = s.values();
  in.x = {axes['b'].size, axes['t'].size, in.table.width, {}};
  for (const Index i : axes.walk("bt")) {
    const std::size_t row =
        row_index(ids[static_cast<std::size_t>(i)], in.table.batch * in.table.tokens);
    in.ids.push_back(static_cast<Index>(row));
    const auto from = in.table.value.begin() +
                      static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(in.x.width);
    in.x.value.insert(in.x.value.end(), from, from + static_cast<std::ptrdiff_t>(in.x.width));
  }
  return in;
}

// Rounded once, as apply_input rounds: in f32 where nothing wider goes in or is wanted.
Tokens applied(const Check& check, Input& in, const Positions& p, const LoweredInput& lowered,
               const Slice& want) {
  DType dtype = want.array->dtype;
  if (in.given) dtype = wider(check.input("x").array->dtype, dtype);
  const Axes axes = axes_of(check, want);
  Tokens y{axes['b'].size, axes['t'].size, axes['d'].size, {}};
  y.value.resize(static_cast<std::size_t>(y.batch * y.tokens * y.width));
  if (dtype != DType::f32) {
    apply_input(in.given ? in.x.view() : TensorView{}, p, lowered, y.view());
    return y;
  }
  std::vector<float> from(in.x.value.begin(), in.x.value.end()), to(y.value.size());
  apply_input(in.given ? tensor(from.data(), {in.x.batch, in.x.tokens, in.x.width}) : TensorView{},
              p, lowered, tensor(to.data(), {y.batch, y.tokens, y.width}));
  y.value.assign(to.begin(), to.end());
  return y;
}

Tokens scattered(const Input& in, const Tokens& d) {
  if (in.ids.empty()) return d;
  Tokens out = in.table;
  std::fill(out.value.begin(), out.value.end(), 0.0);
  for (std::size_t i = 0; i < in.ids.size(); ++i)
    for (Index c = 0; c < d.width; ++c)
      out.value[static_cast<std::size_t>(in.ids[i] * d.width + c)] +=
          d.value[i * static_cast<std::size_t>(d.width) + static_cast<std::size_t>(c)];
  return out;
}

// Of x, the positions (summed over the terms) and every parameter, in double.
template <class S>
void gradients(Check& check, const S& scheme, const Given& given, Input& in, const Positions& p,
               const LoweredInput& lowered) {
  Tokens up = tokens_in(check, "grad_out");
  Tokens d{up.batch, up.tokens, in.given ? in.x.width : up.width, {}};
  d.value.resize(static_cast<std::size_t>(d.batch * d.tokens * d.width));
  const OwnedInputGradients g = zero_gradients(lowered, p);
  input_gradient(in.given ? in.x.view() : TensorView{}, p, lowered, up.view(),
                 in.given ? d.view() : TensorView{}, g.terms);
  if (const std::string* name = check.array_name("out", "grad_x"))
    expect_tokens(check, "grad_x", scattered(in, d), slice(check.in_case, *name));
  if (check.array_name("out", "grad_position") != nullptr) {
    std::vector<double> sum;
    for (const InputGradient& t : g.terms) {
      if (t.position.empty()) continue;
      sum.resize(static_cast<std::size_t>(t.position.count()), 0.0);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += static_cast<const double*>(t.position.data)[i];
    }
    check.expect("grad_position", sum, {p.axes, p.batch, p.count});
  }
  std::vector<Array> back;
  std::vector<TensorView> views;
  for (const Array& a : given.arrays) back.push_back(make_array(DType::f64, a.shape));
  for (Array& a : back) views.push_back(a.view());
  scheme.pull_back(given.views, g.terms, views);
  const std::vector<Parameter> parameters = scheme.parameters();
  for (std::size_t i = 0; i < back.size(); ++i)
    check.expect("grad_" + parameters[i].name, back[i].doubles(), back[i].shape);
}

template <class S>
void encode(Check& check, const S& scheme) {
  const Given given = given_parameters(check, scheme.parameters());
  LoweredInput lowered;
  scheme.lower(given.views, lowered);
  const OwnedPositions positions = positions_of(check);
  Input in = input_of(check);
  const char* ours = in.given ? "out" : "rows";
  const std::string* name = check.array_name("out", ours);
  const bool backward = check.array_name("in", "grad_out") != nullptr;
  if (name == nullptr && !backward)
    refuse("case", "encode compares rows, or out where x is given, or gradients");
  if (name != nullptr) {
    const Slice want = slice(check.in_case, *name);
    expect_tokens(check, ours, applied(check, in, positions, lowered, want), want);
  }
  if (backward) gradients(check, scheme, given, in, positions, lowered);
}

}  // namespace

void run_encode(Check& check) {
  const Encoding encoding = encoding_of(check);
  std::visit(
      [&](const auto& scheme) {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (AbsoluteScheme<S>)
          encode(check, scheme);
        else
          refuse_field("case", "encode", "needs an absolute scheme", S::card.name);
      },
      encoding.scheme);
}

}  // namespace posenc::conformance
