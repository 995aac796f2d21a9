// SPDX-License-Identifier: Apache-2.0
#include "attend_call.h"

#include <algorithm>

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "call_grid.h"
#include "notes.h"
#include "posenc/report/words.h"

namespace posenc::report {

Index paged_keys(const AttentionArgs& a) {
  return a.block_table.empty() ? a.k.tokens : a.block_table.shape[1] * a.k.tokens;
}

namespace {

HeadsLayout layout_of(const Array& a, const std::string& order, const std::string& file) {
  const std::string word = !order.empty() ? order : a.shape.size() == 3 ? "thd" : "";
  if (word != "thd" && word != "bthd" && word != "bhtd")
    throw UsageError(
        word.empty() ? fmt::format("{} must have three axes, [tokens, heads, dim], or four with "
                                   "--order bthd or bhtd, got {}",
                                   file, a.shape.size())
                     : "--order must be thd, bthd or bhtd, got \"" + word + "\"");
  if (word.size() != a.shape.size())
    throw InputError(fmt::format("{}: --order {} has {} axes, the array has {}", file, word,
                                 word.size(), a.shape.size()));
  return layout_from_name(word);
}

Index mask_number(const std::string& value, Index low, const std::string& mask) {
  Index n = 0;
  if (const std::string wrong = read_whole(value, low, kMost, n); !wrong.empty())
    throw UsageError(fmt::format("--mask {}: a number {}", mask, wrong));
  return n;
}

// Keys in pages have the batch in front, whatever q has.
ConstHeads read_heads(AttendCall& c, const char* name, const std::string& file,
                      const std::string& order) {
  const bool pages = !c.args.block_table.empty() && *name != 'q';
  const Array& a = file.empty() ? c.arrays.at(name) : c.read(name, file);
  if (!is_float(a.dtype))
    throw InputError(
        fmt::format("{}: must be f64, f32, f16 or bf16, got {}", file, dtype_name(a.dtype)));
  HeadsLayout layout = HeadsLayout::bthd;
  if (!pages || c.layout != HeadsLayout::thd)
    layout = layout_of(a, order, file);
  else if (a.shape.size() != 4)
    throw InputError(fmt::format("{}: pages must be [pages, page size, heads, channels], got [{}]",
                                 file, fmt::join(a.shape, ", ")));
  (*name == 'q' ? c.layout : c.key_layout) = layout;
  static const double nothing = 0;  // an array without elements has no memory
  ConstHeads h = heads(a.view(), layout);
  if (h.data == nullptr) h.data = &nothing;
  return h;
}

ConstTensorView read_integers(AttendCall& c, const std::string& name, const std::string& file) {
  const Array given = read_array(file, name);
  const std::vector<Index> v = given.integers();
  Array a = make_array(DType::i64, given.shape);
  if (!v.empty()) std::memcpy(a.bytes.data(), v.data(), a.bytes.size());
  return std::as_const(c.arrays.emplace(name, std::move(a)).first->second).view();
}

// A file of bytes (0 hides) or of numbers that are added.
void add_mask_file(AttendCall& c, const std::string& file) {
  Array a = read_array(file, "mask");
  const bool real = is_float(a.dtype);
  Mask& m = c.args.mask;
  if (real ? !m.bias.empty() : !m.visible.empty())
    throw UsageError("--mask " + file + ": one file of its kind only");
  if (real) a = as_doubles(a);
  if (!real && a.dtype != DType::u8) {
    Array bytes = make_array(DType::u8, a.shape);
    const std::vector<Index> v = a.integers();
    for (std::size_t i = 0; i < v.size(); ++i) bytes.bytes[i] = std::byte(v[i] != 0 ? 1 : 0);
    a = std::move(bytes);
  }
  const Array& kept =
      c.arrays.emplace(real ? "mask_bias" : "mask_visible", std::move(a)).first->second;
  (real ? m.bias : m.visible) = kept.view();
}

void add_prefix(AttendCall& c, const std::string& value, const std::string& text) {
  c.prefix = make_array(DType::i64, {1});
  const Index n = mask_number(value, 0, text);
  std::memcpy(c.prefix.bytes.data(), &n, sizeof n);
  c.args.mask.prefix = std::as_const(c.prefix).view();
}

void add_mask(AttendCall& c, const std::string& text) {
  Mask& m = c.args.mask;
  const std::size_t at = text.find('=');
  const std::string word = text.substr(0, at),
                    value = at == std::string::npos ? "" : text.substr(at + 1);
  if (text == "causal") {
    m.causal = true;
  } else if (names_array(text)) {
    add_mask_file(c, text);
  } else if (at != std::string::npos && word == "window") {
    const std::size_t comma = value.find(',');
    if (comma == std::string::npos)
      throw UsageError("--mask window=L,R has two numbers, got \"" + text + "\"");
    m.window_left = mask_number(value.substr(0, comma), -1, text);
    m.window_right = mask_number(value.substr(comma + 1), -1, text);
  } else if (at != std::string::npos && word == "prefix") {
    add_prefix(c, value, text);
  } else if (at != std::string::npos && word == "chunk") {
    m.chunk = mask_number(value, 1, text);
  } else if (at != std::string::npos && word == "sinks") {
    m.sink_tokens = mask_number(value, 0, text);
  } else {
    throw UsageError(
        "--mask must be causal, window=L,R, prefix=N, chunk=N, sinks=N or a file F.npy, "
        "F.safetensors or F.safetensors:NAME, got \"" +
        text + "\"");
  }
}

// [keys] or [rows, keys], kept as [rows, keys].
TokenTypes read_token_types(AttendCall& c, const AttendOptions& o, const LayerSpec& layer) {
  if (o.token_types.empty()) return {.mask_is_given = !o.masks.empty()};
  if (!o.masks.empty())
    throw UsageError("--token-types makes the layer's mask: omit --mask, or pass the whole mask");
  if (!o.cu_seqlens.empty() || !o.block_table.empty() || !o.query_order.empty() ||
      !o.key_order.empty())
    throw UsageError(
        "--token-types needs keys in their order: not with --cu-seqlens, --block-table, "
        "--query-order or --key-order; run the sequences one by one");
  if (!layer.attention.by_token_type)
    throw UsageError(fmt::format(
        "--token-types: layer {} of this model does not mask by token type", layer.index));
  const ConstTensorView given = read_integers(c, "token_types", o.token_types);
  const Index keys = c.args.k.tokens, batch = c.args.q.batch;
  std::vector<Index>& shape = c.arrays.at("token_types").shape;
  if (shape.size() == 1) shape.insert(shape.begin(), 1);
  if (shape.size() != 2 || shape[1] != keys || (shape[0] != 1 && shape[0] != batch))
    throw InputError(fmt::format("{}: must be [{}] or [{}, {}], a type for each key, got [{}]",
                                 o.token_types, keys, batch, keys, fmt::join(shape, ", ")));
  const std::size_t count = static_cast<std::size_t>(shape[0] * keys);
  return {{static_cast<const Index*>(given.data), count}, shape[0]};
}

// What a model's layer does; its mask unless --mask says another one.
void read_layer(AttendCall& c, const AttendOptions& o, const ScoreEncodings& e) {
  const LayerSpec& l = *e.layer;
  c.layer = layer_attention(l, c.query_positions, c.args.mask.query_offset,
                            o.with.empty() ? UnreadScheme::refuse : UnreadScheme::caller_adds,
                            read_token_types(c, o, l));
  c.args.prepare = c.layer->stages;
  c.args.query_factor = c.layer->query_factor();
  if (l.qk_norm && !l.qk_norm->after_rotation)
    note("q and k are used as they are after this layer's norm\n");
  if (!o.scale && !c.layer->scale)
    note("the scale of q.k of this model is not known: head_dim^-1/2 is used (--scale)\n");
  if (l.field("convolution")) note("k and v are used as they are after this layer's convolution\n");
  if (l.query_scale) note("the channels of q are used as they are after this layer's scale of q\n");
  if (!o.softcap) c.args.softcap = c.layer->softcap;
  c.args.softcap_after_terms = c.layer->softcap_after_terms && c.args.softcap != 0;
  if (!c.layer->sinks.empty()) {
    c.arrays.emplace("sinks", sinks_of(e, c.args.q.heads));
    c.args.sink = std::as_const(c.arrays.at("sinks")).view();
  }
  if (!o.masks.empty()) return;
  Mask& m = c.args.mask;
  m.window_left = c.layer->window_left;
  m.window_right = c.layer->window_right;
  m.chunk = c.layer->chunk;
  if (c.layer->visible.empty()) return;
  const Index rows = o.token_types.empty() ? 1 : c.arrays.at("token_types").shape.front();
  m.visible = tensor(std::as_const(c.layer->visible).data(), DType::u8,
                     {rows, 1, c.args.q.tokens, c.args.k.tokens});
}

// Where the queries are among the keys, of each sequence and each row of pages by itself.
void read_offset(AttendCall& c, const AttendOptions& o) {
  Mask& m = c.args.mask;
  if (!m.query_order.empty()) {
    if (!o.offset.empty()) throw UsageError("--offset and --query-order exclude each other");
    return;
  }
  if (o.offset.empty() || o.offset == "end" || o.offset == "start") {
    QueryOffsets found =
        query_offsets(c.args, o.offset == "start" ? QueriesAt::start : QueriesAt::end);
    m.query_offset = found.offset;
    c.offsets = std::move(found.offsets);
    if (!c.offsets.empty()) m.query_offsets = tensor(std::span<const Index>(c.offsets));
    return;
  }
  Index n = 0;
  const auto [end, error] = std::from_chars(o.offset.data(), o.offset.data() + o.offset.size(), n);
  if (error != std::errc() || end != o.offset.data() + o.offset.size())
    throw UsageError("--offset must be a whole number, start or end, got \"" + o.offset + "\"");
  m.query_offset = n;
}

// [tokens] as one row, [rows] as one column.
ConstTensorView with_axis(ConstTensorView v, bool column) {
  if (v.rank != 1) return v;
  v.shape = column ? decltype(v.shape){v.shape[0], 1} : decltype(v.shape){1, v.shape[0]};
  v.stride = column ? decltype(v.stride){1, 1} : decltype(v.stride){v.shape[1], 1};
  v.rank = 2;
  return v;
}

void read_orders(AttendCall& c, const AttendOptions& o) {
  Mask& m = c.args.mask;
  if (o.query_order.empty() != o.key_order.empty())
    throw UsageError("--query-order and --key-order go together");
  if (!o.query_order.empty()) {
    m.query_order = with_axis(read_integers(c, "query_order", o.query_order), false);
    m.key_order = with_axis(read_integers(c, "key_order", o.key_order), false);
  }
  if (!o.key_length.empty()) m.key_length = read_integers(c, "key_length", o.key_length);
  if (o.chunk_origin.empty()) return;
  if (!names_array(o.chunk_origin)) {
    c.chunk_origin = make_array(DType::i64, {1, 1});
    Index n = 0;
    if (!read_whole(o.chunk_origin, -kMost, kMost, n).empty())
      throw UsageError(
          "--chunk-origin must be a whole number or a file F.npy or F.safetensors, got \"" +
          o.chunk_origin + "\"");
    std::memcpy(c.chunk_origin.bytes.data(), &n, sizeof n);
    m.chunk_origin = std::as_const(c.chunk_origin).view();
  } else {
    m.chunk_origin = with_axis(read_integers(c, "chunk_origin", o.chunk_origin), true);
  }
}

void read_masks(AttendCall& c, const AttendOptions& o) {
  for (const std::string& m : o.masks) add_mask(c, m);
  Mask& m = c.args.mask;
  const bool packed = !o.cu_seqlens.empty(), paged = !o.block_table.empty();
  if (!packed && !o.key_cu_seqlens.empty())
    throw UsageError("--key-cu-seqlens goes with --cu-seqlens");
  if (packed) {
    m.query_cu_seqlens = read_integers(c, "cu_seqlens", o.cu_seqlens);
    if (!o.key_cu_seqlens.empty())
      m.key_cu_seqlens = read_integers(c, "key_cu_seqlens", o.key_cu_seqlens);
    else if (!paged)
      m.key_cu_seqlens = m.query_cu_seqlens;
  }
  if (!o.documents.empty()) {
    m.query_document = m.key_document =
        with_axis(read_integers(c, "documents", o.documents), false);
    if (c.args.q.tokens != c.args.k.tokens)
      throw InputError("--documents needs as many queries as keys");
  }
  read_orders(c, o);
  read_offset(c, o);
}

// Those that are given, or the order of the tokens.
void read_positions_of_call(AttendCall& c, const AttendOptions& o) {
  const Index queries = c.args.q.tokens;
  const Index keys = paged_keys(c.args);
  const auto given = [](const std::string& text, Index tokens, const char* option) {
    return positions_or_order(text, 0, tokens, option);
  };
  const auto rows = [](OwnedPositions p) {
    const std::vector<Index> shape =
        p.batch == 1 ? std::vector<Index>{p.count()} : std::vector<Index>{p.batch, p.count()};
    return PositionList{std::move(p), shape};
  };
  const std::string key =
      o.key_positions.empty() && queries == keys ? o.positions : o.key_positions;
  CallPositions order;
  if (o.positions.empty() || key.empty()) order = default_positions(c.args);
  c.query_positions = o.positions.empty() ? rows(std::move(order.query))
                                          : given(o.positions, queries, "--positions");
  c.key_positions = key.empty() ? rows(std::move(order.key)) : given(key, keys, "--key-positions");
}

}  // namespace

ModelSizes sizes_of_call(AttendCall& c, const AttendOptions& o) {
  const ConstHeads q = read_heads(c, "q", o.q, o.order);
  ModelSizes sizes{.heads = q.heads, .head_dim = q.dim};
  for (const std::string& m : o.masks)
    if (m == "causal") sizes.causal = true;
  return sizes;
}

void read_call(AttendCall& c, const AttendOptions& o, const ScoreEncodings& e) {
  if (!o.block_table.empty() && o.key_length.empty())
    throw UsageError("--block-table goes with --key-length");
  if (!o.block_table.empty()) c.args.block_table = read_integers(c, "block_table", o.block_table);
  c.args.q = read_heads(c, "q", o.q, o.order);
  c.args.k = read_heads(c, "k", o.k, o.order);
  c.args.v = read_heads(c, "v", o.v, o.order);
  c.args.softcap = o.softcap.value_or(0);
  c.args.exact = o.exact;
  read_masks(c, o);
  read_positions_of_call(c, o);
  place_on_grid(c, o, e);
  if (e.layer == nullptr && !o.token_types.empty())
    throw UsageError(
        "--token-types goes with a MODEL whose layer masks by them, not with a SCHEME");
  if (e.layer != nullptr) read_layer(c, o, e);
  // Text of a rotation with several axes has one list for all of them.
  const Index axes = c.layer && c.layer->rotary ? c.layer->rotary->axes() : 1;
  const auto spread = [&](const PositionList& list) {
    return list.owned.axes == 1 ? spread_over_axes(list, axes) : Positions(list);
  };
  c.args.query_positions = spread(c.query_positions);
  c.args.key_positions = spread(c.key_positions);
  std::vector<Index> shape = c.arrays.at("q").shape;  // channels are the last axis of every order
  shape.back() = c.args.v.dim;
  c.out = make_array(c.args.q.dtype, shape);
  c.log_sum_exp = make_array(DType::f64, {c.args.q.batch, c.args.q.heads, c.args.q.tokens});
  c.result = {heads(c.out.view(), c.layout), c.log_sum_exp.view()};
}

AttentionPlan plan_of_call(const AttendCall& c, const AttendOptions& o, const ScoreEncodings& e) {
  const std::optional<double> of_layer =
      c.layer ? c.layer->content_scale(c.args.q.dim) : std::nullopt;
  return plan_of(e, c.layer ? &*c.layer : nullptr,
                 {.heads = c.args.q.heads,
                  .head_dim = c.args.q.dim,
                  .key_heads = c.args.k.heads,
                  .value_dim = c.args.v.dim,
                  .scale = o.scale ? o.scale : of_layer},
                 o.subject.context.value_or(length_of(c.args.key_positions)));
}

std::vector<double> rows_that_see(const AttentionArgs& a, const double* probabilities) {
  const Index keys = paged_keys(a);
  std::vector<double> rows(static_cast<std::size_t>(a.q.heads), 0.0);
  for (Index b = 0; b < a.q.batch; ++b)
    for (double& seen : rows)
      for (Index i = 0; i < a.q.tokens; ++i, probabilities += keys)
        if (std::any_of(probabilities, probabilities + keys, [](double p) { return p != 0; }))
          ++seen;
  for (double& seen : rows) seen = std::max(1.0, seen);
  return rows;
}

}  // namespace posenc::report
