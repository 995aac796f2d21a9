// SPDX-License-Identifier: Apache-2.0
#include "attention_call.h"

#include "posenc/attention/order.h"

namespace posenc::python {
namespace {

// [tokens] as one row for all.
ConstTensorView with_row(ConstTensorView v) {
  for (std::int32_t n = v.rank; n > 0; --n) {
    v.shape[static_cast<std::size_t>(n)] = v.shape[static_cast<std::size_t>(n - 1)];
    v.stride[static_cast<std::size_t>(n)] = v.stride[static_cast<std::size_t>(n - 1)];
  }
  v.shape[0] = 1;
  v.stride[0] = 0;
  ++v.rank;
  return v;
}

// k or v, also as q8_0 blocks in uint8.
ConstHeads keys_of(const ConstTensorView& v, HeadsLayout layout, const char* name) {
  return v.dtype == DType::u8 ? key_blocks(v, layout) : heads_of(v, layout, {kAttentionName, name});
}

bool is_list(nb::handle h) {
  return nb::isinstance<nb::list>(h) || nb::isinstance<nb::tuple>(h) || PyRange_Check(h.ptr());
}

// Numbers of a list, or of lists of equal length; false: something else.
bool read_list(nb::handle h, std::vector<Index>& to, std::vector<Index>& shape,
               std::size_t depth = 0) {
  if (depth > 2) return false;
  if (!is_list(h)) {
    Index n = 0;
    if (PyBool_Check(h.ptr()) || !nb::try_cast<Index>(h, n)) return false;
    to.push_back(n);
    return depth == shape.size();
  }
  const auto size = static_cast<Index>(nb::len(h));
  if (shape.size() == depth && to.empty()) shape.push_back(size);
  if (depth >= shape.size() || shape[depth] != size) return false;
  for (const nb::handle x : nb::iter(h))
    if (!read_list(x, to, shape, depth + 1)) return false;
  return true;
}

}  // namespace

CallArguments::CallArguments(nb::handle q, nb::handle k, nb::handle v, nb::dict options)
    : options_{std::move(options)} {
  const std::pair<const char*, nb::handle> given[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const auto& [name, h] : given) kept_.emplace_back(h, Name{kAttentionName, name}, Use::read);
  layout_ = layout_of(array(0), options_.value<std::string>("order", "must be a word"),
                      {kAttentionName, "q"});
  args_.block_table = take_integers("block_table", 2);
  args_.q = heads_of(kept_[0].const_view(), *layout_, {kAttentionName, "q"});
  args_.k = keys_of(kept_[1].const_view(), key_layout(), "k");
  args_.v = keys_of(kept_[2].const_view(), key_layout(), "v");
  args_.softcap = options_.value<double>("softcap", "must be a number").value_or(args_.softcap);
  args_.softcap_after_terms = options_.value<bool>("softcap_after_terms", "must be True or False")
                                  .value_or(args_.softcap_after_terms);
  args_.exact = options_.value<bool>("exact", "must be True or False").value_or(args_.exact);
  args_.sink = take("sink");
  args_.query_factor = take("query_factor");
  args_.head_scale = take("head_scale");
  args_.mix_before = take("mix_before");
  args_.mix_after = take("mix_after");
  read_mask();
  read_offset();
  read_positions();
}

HeadsLayout CallArguments::key_layout() const {
  return !args_.block_table.empty() && *layout_ == HeadsLayout::thd ? HeadsLayout::bthd : *layout_;
}

Index CallArguments::keys() const {
  return args_.block_table.empty() ? args_.k.tokens : args_.block_table.shape[1] * args_.k.tokens;
}

ConstTensorView CallArguments::take(const char* name) {
  const nb::object o = options_.get(name);
  if (o.is_none()) return {};
  return kept_.emplace_back(o, Name{kAttentionName, name}, Use::read).const_view();
}

ConstTensorView CallArguments::take_integers(const char* name, std::int32_t lifted) {
  const nb::object o = options_.get(name);
  ConstTensorView v;
  if (is_list(o) || PyLong_Check(o.ptr())) {
    std::vector<Index>& list = lists_.emplace_back();
    std::vector<Index> shape;
    if (!read_list(o, list, shape) || shape.size() > 2)
      refuse_field(kAttentionName, name,
                   "must be whole numbers: an array, a list or lists of equal length",
                   text_of(nb::repr(o)));
    static const Index nothing = 0;
    v.data = list.empty() ? &nothing : list.data();
    v.dtype = DType::i64;
    if (shape.empty()) shape.push_back(1);  // one number for all
    v.rank = static_cast<std::int32_t>(shape.size());
    Index stride = 1;
    for (std::size_t n = shape.size(); n-- > 0; stride *= shape[n])
      v.shape[n] = shape[n], v.stride[n] = stride;
  } else {
    v = take(name);
  }
  return lifted > 0 && v.rank == lifted - 1 && !v.empty() ? with_row(v) : v;
}

ConstTensorView CallArguments::take_flags(const char* name) {
  const ConstTensorView v = take(name);
  return v.rank == 1 && !v.empty() ? with_row(v) : v;
}

void CallArguments::read_mask() {
  Mask& m = args_.mask;
  m.causal = options_.value<bool>("causal", "must be True or False").value_or(m.causal);
  if (const auto w = options_.value<std::vector<Index>>(
          "window", "must be two whole numbers, left and right")) {
    if (w->size() != 2)
      refuse_field(kAttentionName, "window", "must be two whole numbers, left and right",
                   std::to_string(w->size()));
    m.window_left = (*w)[0];
    m.window_right = (*w)[1];
  }
  m.prefix = take_integers("prefix");
  m.chunk = options_.value<Index>("chunk", "must be a whole number").value_or(m.chunk);
  m.chunk_origin = take_integers("chunk_origin");
  for (; m.chunk_origin.rank < 2 && !m.chunk_origin.empty(); ++m.chunk_origin.rank) {  // one a row
    const auto axis = static_cast<std::size_t>(m.chunk_origin.rank);
    m.chunk_origin.shape[axis] = m.chunk_origin.stride[axis] = 1;
  }
  m.sink_tokens =
      options_.value<Index>("sink_tokens", "must be a whole number").value_or(m.sink_tokens);
  m.head_side = take("head_side");
  m.key_length = take_integers("key_length");
  m.key_visible = take_flags("key_visible");
  m.visible = take("visible");
  m.bias = take("bias");
  m.query_order = take_integers("query_order", 2);
  m.key_order = take_integers("key_order", 2);
  m.query_document = take_integers("query_document", 2);
  m.key_document = take_integers("key_document", 2);
  m.query_cu_seqlens = take_integers("query_cu_seqlens");
  m.key_cu_seqlens = take_integers("key_cu_seqlens");
}

// Where the queries are among the keys, of each sequence and each row of pages by itself.
void CallArguments::read_offset() {
  Mask& m = args_.mask;
  const nb::object offset = options_.get("offset");
  if (!m.query_order.empty() || !m.key_order.empty()) {
    if (!offset.is_none())
      refuse_field(kAttentionName, "offset", "must not be given together with query_order",
                   text_of(nb::repr(offset)));
    return;
  }
  if (!offset.is_none() && !nb::isinstance<nb::str>(offset)) {
    m.query_offset = *options_.value<Index>("offset", "must be end, start or a whole number");
    return;
  }
  const std::string word = offset.is_none() ? "end" : text_of(offset);
  if (word != "end" && word != "start")
    refuse_field(kAttentionName, "offset", "must be end, start or a whole number", word);
  QueryOffsets found = query_offsets(args_, word == "end" ? QueriesAt::end : QueriesAt::start);
  m.query_offset = found.offset;
  offsets_ = std::move(found.offsets);
  if (!offsets_.empty()) m.query_offsets = tensor(std::span<const Index>(offsets_));
}

// Those given, or the tokens' order.
void CallArguments::read_positions() {
  const nb::object query = options_.get("query_positions"), key = options_.get("key_positions");
  if (query.is_none() || key.is_none()) {
    CallPositions p = default_positions(args_);
    query_order_ = std::move(p.query);
    key_order_ = std::move(p.key);
  }
  const auto read = [&](const nb::object& given, const char* name, const OwnedPositions& order,
                        Index tokens) -> Positions {
    if (given.is_none()) return order;
    const Positions& p = positions_.emplace_back(given, Name{kAttentionName, name}).value();
    // Without memory they would count as absent.
    if (p.data == nullptr && tokens > 0)
      refuse_field(kAttentionName, name, "must be one for each of the tokens", Index{0});
    return p;
  };
  args_.query_positions = read(query, "query_positions", query_order_, args_.q.tokens);
  args_.key_positions = read(key, "key_positions", key_order_, keys());
}

void CallArguments::require_in_place() const {
  for (const Borrowed& b : kept_) b.require_in_place(kAttentionName);
  for (const PositionsArgument& p : positions_) p.require_in_place(kAttentionName);
}

void CallArguments::warn_of_order() const {
  if (positions_.empty()) return;
  const std::string text = order_conflict(args_);
  if (text.empty()) return;
  const bool torch = options_.value<bool>("torch", "must be True or False").value_or(false);
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), torch ? 4 : 2) != 0) nb::raise_python_error();
}

}  // namespace posenc::python
