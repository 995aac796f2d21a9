// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/attend_call.h"

#include <algorithm>
#include <cstring>

#include "conformance/runner/encoding.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/position_list.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// Values in the order of `letters` and the sizes there; what an array lacks has size 1.
Array ordered(const Slice& s, std::string_view stored, std::string_view letters) {
  const Axes axes(s.shape, stored, {});
  const std::vector<double> values = s.values();
  std::vector<double> out;
  for (const Index i : axes.walk(letters)) out.push_back(values[static_cast<std::size_t>(i)]);
  std::vector<Index> shape;
  for (const char c : letters) shape.push_back(axes[c].size);
  return converted<double>(out, DType::f64, shape);
}

template <class E>
E enum_named(const std::string& word, std::string_view what) {
  const auto& names = EnumNames<E>::value;
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) refuse("case", std::string(what) + " has no such choice", word);
  return static_cast<E>(found - names.begin());
}

Index integer_of(const Json& j) {
  return j.as_integer();
}

// Rows of numbers, all of one length.
struct NumberRows {
  std::vector<double> values;
  Index rows = 0, columns = 0;

  void add(const Json& row, std::string_view name) {
    const auto n = static_cast<Index>(row.as_array().size());
    if (rows > 0 && n != columns)
      refuse("case", "rows of numbers must have one length: " + std::string(name), n);
    for (const Json& x : row.as_array()) values.push_back(x.as_number());
    ++rows, columns = n;
  }
};

}  // namespace

std::string attention_letters(const Check& check, const Slice& s) {
  return letters_of(check, s, s.shape.size() == 4 ? "bhtd" : "");
}

AttendCall::AttendCall(const Check& check)
    : projected(Projected::of(check)),
      q(read_heads(check, "q")),
      k(read_heads(check, "k")),
      v(read_heads(check, "v")) {
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  read_arrays(check);
  keys_ = args.block_table.empty() ? args.k.tokens : args.block_table.shape[1] * args.k.tokens;
  read_layer(check);
  read_numbers(check);
  read_window(check);
  read_stages(check);
  read_positions(check);
  make_plan(check);
  read_named(check);
}

// Scores q.k that are given: they are q, and k the unit vectors of all keys; so is v, so that the
// output is the probabilities.
HeadsArray content_heads(const Check& check, bool query) {
  const Slice s = check.input("content");
  if (s.shape.empty()) refuse_field("case", "content", "needs an axis of keys", s.text);
  if (query) return heads_of(s, DType::f64, letters_of(check, s, "bhtd"), 0);
  const Index n = s.shape.back();
  std::vector<double> unit(static_cast<std::size_t>(n * n), 0.0);
  for (Index i = 0; i < n; ++i) unit[static_cast<std::size_t>(i * n + i)] = 1;
  return {converted<double>(unit, DType::f64, {1, n, 1, n}), Axes({1, n, 1, n}, "bthd", {})};
}

// One array, or several behind each other along the tokens: what is cached, and what is new.
HeadsArray AttendCall::read_heads(const Check& check, const char* name) const {
  if (projected) return projected->heads(name);
  if (check.array_name("in", "content") != nullptr) return content_heads(check, name[0] == 'q');
  const bool value = std::string_view(name) == "v" && check.find("value_dim") != nullptr;
  const auto dim = check.integer(value ? "value_dim" : "head_dim", 0);
  const Json* given = check.member("in", name);
  if (given == nullptr || !given->is_array()) {
    const Slice s = check.input(name);
    return heads_of(s, DType::f64, attention_letters(check, s), dim);
  }
  std::vector<HeadsArray> parts;
  Index tokens = 0;
  for (const Json& one : given->as_array()) {
    const Slice s = slice(check.in_case, one.as_string());
    parts.push_back(heads_of(s, DType::f64, attention_letters(check, s), dim));
    tokens += parts.back().axes['t'].size;
  }
  return behind_each_other(parts, tokens, name);
}

ConstTensorView AttendCall::keep(Array a) {
  arrays_.push_back(std::move(a));
  return std::as_const(arrays_.back()).view();
}

// An array, or a matrix of numbers in `call`.
ConstTensorView AttendCall::real(const Check& check, const char* name) {
  if (const Json* rows = check.member("call", name)) {
    NumberRows all;
    for (const Json& row : rows->as_array()) all.add(row, name);
    if (all.values.empty()) refuse("case", "a matrix of numbers must not be empty", name);
    return keep(converted<double>(all.values, DType::f64, {all.rows, all.columns}));
  }
  if (check.array_name("in", name) == nullptr) return {};
  return keep(dense(check.input(name), DType::f64));
}

ConstTensorView AttendCall::integers(const Check& check, const char* name) {
  if (check.array_name("in", name) == nullptr) return {};
  const Slice s = check.input(name);
  return keep(converted<Index>(s.values(), DType::i64, s.shape));
}

// [queries, keys] or [batch, heads, queries, keys]; three axes say which by their letters.
ConstTensorView AttendCall::by_pair(const Check& check, const char* name, bool flags) {
  if (check.array_name("in", name) == nullptr) return {};
  const Slice s = check.input(name);
  const std::string stored = letters_of(check, s,
                                        s.shape.size() == 2   ? "qk"
                                        : s.shape.size() == 4 ? "bhqk"
                                                              : std::string());
  Array a = ordered(s, stored, s.shape.size() == 2 ? "qk" : "bhqk");
  if (flags) a = converted<std::uint8_t>(a.doubles(), DType::u8, a.shape);
  return keep(std::move(a));
}

void AttendCall::read_arrays(const Check& check) {
  Mask& m = args.mask;
  args.sink = real(check, "sink");
  args.head_scale = real(check, "head_scale");
  args.query_factor = real(check, "query_factor");
  args.mix_before = real(check, "mix_before");
  args.mix_after = real(check, "mix_after");
  args.block_table = integers(check, "block_table");
  m.key_length = integers(check, "key_length");
  m.query_order = integers(check, "query_order");
  m.key_order = integers(check, "key_order");
  m.query_document = integers(check, "query_document");
  m.key_document = integers(check, "key_document");
  m.query_cu_seqlens = integers(check, "query_cu_seqlens");
  m.key_cu_seqlens = integers(check, "key_cu_seqlens");
  m.prefix = integers(check, "prefix");
  m.chunk_origin = integers(check, "chunk_origin");
  for (const auto& [key, to] :
       {std::pair{"key_length", &m.key_length}, std::pair{"query_cu_seqlens", &m.query_cu_seqlens},
        std::pair{"key_cu_seqlens", &m.key_cu_seqlens}, std::pair{"chunk_origin", &m.chunk_origin}})
    if (const Json* list = check.member("call", key)) {  // numbers of the case's parameters
      std::vector<double> values;
      for (const Json& x : list->as_array()) values.push_back(x.as_number());
      const auto n = static_cast<Index>(values.size());
      *to = keep(converted<Index>(values, DType::i64, {n}));
    }
  if (m.chunk_origin.rank == 1) {
    m.chunk_origin.rank = 2;
    m.chunk_origin.shape[1] = 1;
    m.chunk_origin.stride[1] = 1;
  }
  for (ConstTensorView* rows : {&m.query_order, &m.key_order, &m.query_document, &m.key_document})
    if (rows->rank == 1) {  // of every row of the batch
      rows->rank = 2;
      rows->shape = {1, rows->shape[0]};
      rows->stride = {0, 1};
    }
  if (check.array_name("in", "key_visible") != nullptr) {
    const Slice s = check.input("key_visible");
    std::vector<Index> shape = s.shape;
    if (shape.size() == 1) shape.insert(shape.begin(), 1);
    m.key_visible = keep(converted<std::uint8_t>(s.values(), DType::u8, shape));
  }
  m.visible = by_pair(check, "visible", true);
  m.bias = by_pair(check, "bias", false);
}

void AttendCall::read_numbers(const Check& check) {
  const auto number = [&](const char* key, double fallback) {
    const Json* j = check.member("call", key);
    return j == nullptr ? fallback : j->as_number();
  };
  const auto flag = [&](const char* key) {
    const Json* j = check.member("call", key);
    return j != nullptr && j->as_bool();
  };
  Mask& m = args.mask;
  args.softcap = number("softcap", args.softcap);
  args.softcap_after_terms |= flag("softcap_after_terms");
  m.causal = flag("causal");
  m.sink_tokens = number_as<Index>(number("sink_tokens", 0));
  if (const Json* chunk = check.member("call", "chunk")) m.chunk = chunk->as_integer();
  if (const Json* offset = check.member("call", "query_offset")) {
    if (!offset->is_string())
      m.query_offset = offset->as_integer();
    else if (offset->as_string() == "end")
      m.query_offset = keys_ - args.q.tokens;
    else if (offset->as_string() != "start")
      refuse_field("case", "query_offset", "must be a number, start or end", offset->as_string());
  }
  if (const Json* n = check.member("call", "normalisation")) {
    args.normalisation = enum_named<Normalisation>(n->as_string(), "normalisation");
  }
}

void AttendCall::read_window(const Check& check) {
  Mask& m = args.mask;
  if (const Json* window = check.member("call", "window")) {
    const auto& both = window->as_array();
    if (both.size() != 2) refuse("case", "a window has two numbers, left and right");
    m.window_left = both[0].is_null() ? kUnbounded : integer_of(both[0]);
    m.window_right = both[1].is_null() ? kUnbounded : integer_of(both[1]);
  }
  if (const Json* prefix = check.member("call", "prefix"))
    m.prefix = keep(converted<Index>({prefix->as_number()}, DType::i64, {1}));
  if (const Json* sides = check.member("call", "head_side")) {
    std::vector<double> values;
    for (const Json& side : sides->as_array())
      values.push_back(static_cast<double>(enum_named<Side>(side.as_string(), "head_side")));
    const auto n = static_cast<Index>(values.size());
    m.head_side = keep(converted<std::uint8_t>(values, DType::u8, {n}));
  }
}

void AttendCall::read_stages(const Check& check) {
  const Json* list = check.member("call", "prepare");
  const Json* epsilon = check.member("call", "epsilon");
  if (list == nullptr) return layer_stages();
  for (const Json& word : list->as_array()) {
    Stage s;
    s.kind = enum_named<StageKind>(word.as_string(), "prepare");
    if (epsilon != nullptr && (s.kind == StageKind::l2 || s.kind == StageKind::rms))
      s.epsilon = epsilon->as_number();
    const bool add = s.kind == StageKind::add, rms = s.kind == StageKind::rms;
    if (add || rms) {
      s.q = real(check, add ? "query_bias" : "query_norm");
      s.k = real(check, add ? "key_bias" : "key_norm");
      for (ConstTensorView* array : {&s.q, &s.k})
        if (array->rank == 1) {
          array->rank = 2;
          array->shape = {1, array->shape[0]};
          array->stride = {0, 1};
        }
    }
    stages_.push_back(s);
  }
  args.prepare = stages_;
}

void AttendCall::read_positions(const Check& check) {
  const bool same = has_positions(check);
  if (same || has_positions(check, "q_positions"))
    query_positions_ = positions_of(check, same ? "positions" : "q_positions");
  if (same || has_positions(check, "k_positions"))
    key_positions_ = positions_of(check, same ? "positions" : "k_positions");
  if (query_positions_.count() == 0)
    query_positions_ = arange(args.mask.query_offset, args.q.tokens);
  if (key_positions_.count() == 0) key_positions_ = arange(0, keys_);
  args.query_positions = query_positions_;
  args.key_positions = key_positions_;
}

void AttendCall::make_plan(const Check& check) {
  std::vector<std::string> texts;
  if (const Json* scheme = check.find("scheme")) {
    if (scheme->is_array())
      for (const Json& one : scheme->as_array()) texts.push_back(one.as_string());
    else
      texts.push_back(scheme->as_string());
  }
  const Json* scale = check.member("call", "scale");
  if (scale != nullptr) given_scale_ = scale->as_number();
  const AttentionSizes sizes{.heads = args.q.heads,
                             .head_dim = args.q.dim,
                             .key_heads = args.k.heads,
                             .value_dim = args.v.dim,
                             .scale = given_scale_ ? given_scale_
                                      : layer_     ? of_layer_.content_scale(args.q.dim)
                                                   : std::nullopt};
  if (layer_) return plan_of_layer(texts, sizes);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  plan.emplace(views, sizes, check.integer("context", 0));
}

// An input of heads or gates whose axes the check names, in the order of ours: the numbers stay.
void AttendCall::order_input(const Check& check, const Slice& s, ConstTensorView& view) {
  const std::string stored = letters_of(check, s, "-");
  if (stored == "bht" || stored == "bhtd") {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.stride[1], view.stride[2]);
  }
}

// Parameters may be stored in other shapes of as many numbers; inputs as they are, but for order.
void AttendCall::read_named(const Check& check) {
  std::vector<Parameter> needed = plan->parameters();
  if (layer_) read_layer_parameters(check, needed);
  Given given = given_parameters(check, needed);
  for (std::size_t n = 0; n < needed.size(); ++n) {
    names_.push_back(needed[n].name);
    parameters.push_back({names_.back(), keep(std::move(given.arrays[n]))});
  }
  for (const Input& i : plan->inputs()) {
    // Classes and the like as numbers of the check: a list for all rows of the batch, or a list a row.
    if (const Json* list = check.member("inputs", i.name)) {
      NumberRows all;
      const bool lists = !list->as_array().empty() && list->as_array()[0].is_array();
      if (lists)
        for (const Json& row : list->as_array()) all.add(row, i.name);
      else
        all.add(*list, i.name);
      names_.push_back(i.name);
      inputs.push_back(
          {names_.back(), keep(converted<Index>(all.values, DType::i64, {all.rows, all.columns}))});
      continue;
    }
    if (check.array_name("in", i.name) == nullptr) continue;
    const Slice s = check.input(i.name);
    std::vector<Index> shape = s.shape;
    if (shape.size() + 1 == i.shape.size() && i.shape[0] == kBatch) shape.insert(shape.begin(), 1);
    names_.push_back(i.name);
    inputs.push_back(
        {names_.back(), keep(i.integer ? converted<Index>(s.values(), DType::i64, shape)
                                       : converted<double>(s.values(), DType::f64, shape))});
    order_input(check, s, inputs.back().array);
  }
  lowered = plan->lower(parameters, distance_ranges(args.query_positions, args.key_positions));
}

}  // namespace posenc::conformance
