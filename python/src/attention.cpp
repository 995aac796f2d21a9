// SPDX-License-Identifier: Apache-2.0
// Attention with position terms of numpy's arrays, and every gradient of it.

#include <algorithm>
#include <deque>

#include "arrays.h"
#include "bindings.h"
#include "posenc/absolute/initial.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "torch.h"

namespace posenc::python {
namespace {

constexpr const char* kWho = "attention";

// What a caller gave by name, with None for what was not given.
struct Options {
  nb::dict given;

  nb::object get(const char* name) const {
    PyObject* const found = PyDict_GetItemString(given.ptr(), name);
    return found == nullptr ? nb::object(nb::none()) : nb::borrow(found);
  }
  template <class T>
  std::optional<T> value(const char* name, const char* rule) const {
    const nb::object o = get(name);
    if (o.is_none()) return std::nullopt;
    T v{};
    if (!nb::try_cast<T>(o, v))
      refuse_field(kWho, name, std::string(name) + " " + rule, text_of(nb::repr(o)));
    return v;
  }
};

// None, one encoding, or several.
std::vector<std::string> texts_of(nb::handle encodings) {
  std::vector<std::string> texts;
  if (nb::isinstance<nb::str>(encodings) || nb::hasattr(encodings, "_text")) {
    texts.push_back(scheme_text(encodings, kWho));
  } else if (!encodings.is_none()) {
    for (const nb::handle h : nb::iter(encodings)) texts.push_back(scheme_text(h, kWho));
  }
  return texts;
}

// One call: its arrays, its plan, its result.
class Attention {
 public:
  Attention(nb::handle encodings, nb::handle q, nb::handle k, nb::handle v, nb::dict options);

  nb::object out() const { return out_object_; }
  nb::object log_sum_exp() const { return sum_object_; }
  nb::object backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only);
  nb::dict scores(nb::handle names);
  bool reads_content() const { return plan_->reads_content(); }

 private:
  ConstTensorView take(const char* name) {
    const nb::object o = options_.get(name);
    if (o.is_none()) return {};
    return kept_.emplace_back(o, Name{kWho, name}, Use::read).const_view();
  }
  ConstHeads take_heads(nb::handle h, const char* name) {
    const Borrowed& b = kept_.emplace_back(h, Name{kWho, name}, Use::read);
    if (!layout_)
      layout_ =
          layout_of(b.view(), options_.value<std::string>("order", "must be a word"), {kWho, name});
    return heads(b.const_view(), *layout_);
  }
  void read_mask();
  void read_positions();
  void make_plan(nb::handle encodings);
  void take_result();
  void run();
  // A dense array of zeros that gradients are added to.
  TensorView gradient_like(const char* name, DType, std::span<const Index> shape, nb::dict& into);
  std::vector<NamedArray> named(const NamedBorrowed&) const;

  Options options_;
  NamedBorrowed parameters_, inputs_;
  std::deque<Borrowed> kept_;
  std::deque<PositionsArgument> positions_;
  OwnedPositions query_order_, key_order_;
  std::optional<HeadsLayout> layout_;
  std::vector<Index> prefix_;
  AttentionArgs args_;
  std::optional<AttentionPlan> plan_;
  Executor team_ = default_executor();
  nb::object out_object_, sum_object_;
  Borrowed out_, sum_;
  AttentionResult result_;
};

Attention::Attention(nb::handle encodings, nb::handle q, nb::handle k, nb::handle v,
                     nb::dict options)
    : options_{std::move(options)},
      parameters_(options_.get("parameters"), kWho),
      inputs_(options_.get("inputs"), kWho) {
  args_.q = take_heads(q, "q");
  args_.k = take_heads(k, "k");
  args_.v = take_heads(v, "v");
  read_mask();
  read_positions();
  args_.softcap = options_.value<double>("softcap", "must be a number").value_or(args_.softcap);
  args_.softcap_after_terms = options_.value<bool>("softcap_after_terms", "must be True or False")
                                  .value_or(args_.softcap_after_terms);
  args_.sink = take("sink");
  args_.query_factor = take("query_factor");
  args_.head_scale = take("head_scale");
  make_plan(encodings);
  take_result();
  run();
}

void Attention::take_result() {
  const nb::object given = options_.get("out"), sums_given = options_.get("log_sum_exp");
  const TensorView& qv = kept_.front().view();
  std::vector<Index> shape(qv.shape.begin(), qv.shape.begin() + qv.rank);
  shape[layout_name(*layout_).find('d')] = args_.v.dim;
  out_object_ = given.is_none() ? new_array(qv.dtype, shape) : given;
  out_ = Borrowed(out_object_, {kWho, "out"}, Use::write);
  const Index sums[] = {args_.q.batch, args_.q.heads, args_.q.tokens};
  sum_object_ = sums_given.is_none() ? new_array(DType::f64, sums) : sums_given;
  sum_ = Borrowed(sum_object_, {kWho, "log_sum_exp"}, Use::write);
  result_ = {heads(out_.view(), *layout_), sum_.view()};
}

void Attention::read_mask() {
  Mask& m = args_.mask;
  m.causal = options_.value<bool>("causal", "must be True or False").value_or(m.causal);
  const nb::object offset = options_.get("offset");
  if (offset.is_none() || nb::isinstance<nb::str>(offset)) {
    const std::string word = offset.is_none() ? "end" : text_of(offset);
    if (word != "end" && word != "start")
      refuse_field(kWho, "offset", "offset must be end, start or a whole number", word);
    m.query_offset = word == "end" ? args_.k.tokens - args_.q.tokens : 0;
  } else {
    m.query_offset = *options_.value<Index>("offset", "must be end, start or a whole number");
  }
  if (const auto w = options_.value<std::vector<Index>>(
          "window", "must be two whole numbers, left and right")) {
    if (w->size() != 2)
      refuse_field(kWho, "window", "window must be two whole numbers, left and right",
                   std::to_string(w->size()));
    m.window_left = (*w)[0];
    m.window_right = (*w)[1];
  }
  if (PyLong_Check(options_.get("prefix").ptr())) {
    prefix_ = {*options_.value<Index>("prefix", "must be a whole number or an array")};
    m.prefix = tensor(std::span<const Index>(prefix_));
  } else {
    m.prefix = take("prefix");
  }
  m.chunk = options_.value<Index>("chunk", "must be a whole number").value_or(m.chunk);
  m.sink_tokens =
      options_.value<Index>("sink_tokens", "must be a whole number").value_or(m.sink_tokens);
  m.key_length = take("key_length");
  m.key_visible = take("key_visible");
  m.visible = take("visible");
  m.bias = take("bias");
  m.query_document = take("query_document");
  m.key_document = take("key_document");
  m.query_cu_seqlens = take("query_cu_seqlens");
  m.key_cu_seqlens = take("key_cu_seqlens");
}

// Those given, or the tokens' order: keys from 0, queries from the offset.
void Attention::read_positions() {
  const auto read = [&](const char* name, OwnedPositions& order, Index first,
                        Index count) -> Positions {
    const nb::object given = options_.get(name);
    if (!given.is_none()) return positions_.emplace_back(given, Name{kWho, name}).value();
    order = arange(first, count);
    return order;
  };
  args_.query_positions =
      read("query_positions", query_order_, args_.mask.query_offset, args_.q.tokens);
  args_.key_positions = read("key_positions", key_order_, 0, args_.k.tokens);
}

void Attention::make_plan(nb::handle encodings) {
  const std::vector<std::string> texts = texts_of(encodings);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  AttentionSizes sizes{.heads = args_.q.heads,
                       .head_dim = args_.q.dim,
                       .key_heads = args_.k.heads,
                       .value_dim = args_.v.dim,
                       .scale = options_.value<double>("scale", "must be a number")};
  plan_.emplace(views, sizes,
                options_.value<Index>("length", "must be a whole number").value_or(0));
}

std::vector<NamedArray> Attention::named(const NamedBorrowed& from) const {
  std::vector<NamedArray> list;
  for (const auto& [name, array] : from.arrays) list.push_back({name, array.const_view()});
  return list;
}

void Attention::run() {
  const std::vector<NamedArray> parameters = named(parameters_), inputs = named(inputs_);
  // Out and log_sum_exp are those of an earlier call, of which gradients are wanted.
  if (options_.value<bool>("torch", "must be True or False").value_or(false)) team_ = torch_team();
  const bool done = options_.value<bool>("done", "must be True or False").value_or(false);
  const nb::gil_scoped_release free;
  plan_->lower(parameters, distance_ranges(args_.query_positions, args_.key_positions));
  if (!done) plan_->forward(args_, inputs, result_, team_);
}

TensorView Attention::gradient_like(const char* name, DType t, std::span<const Index> shape,
                                    nb::dict& into) {
  const nb::object a = new_array(t, shape, true);
  into[name] = a;
  return Borrowed(a, {kWho, name}, Use::write).view();  // the array lives in `into`
}

nb::object Attention::backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only) {
  const Borrowed d(d_out, {kWho, "d_out"}, Use::read);
  const Borrowed dl = optional_array(d_log_sum_exp, {kWho, "d_log_sum_exp"}, Use::read);
  const DType t = args_.q.dtype == DType::f64 ? DType::f64 : DType::f32;
  std::vector<std::string> names;
  if (!only.is_none())
    for (const nb::handle h : nb::iter(only)) names.push_back(text_of(h));
  const auto is_wanted = [&](const std::string& name) {
    return only.is_none() || std::find(names.begin(), names.end(), name) != names.end();
  };
  nb::dict all, of_parameters, of_inputs;
  const auto shape_of = [](const auto& v) {
    return std::span<const Index>(v.shape.data(), static_cast<std::size_t>(v.rank));
  };
  AttentionGradients g;
  const std::pair<const char*, Heads*> of_heads[] = {{"q", &g.q}, {"k", &g.k}, {"v", &g.v}};
  for (std::size_t i = 0; i < 3; ++i)
    if (const auto& [name, to] = of_heads[i]; is_wanted(name))
      *to = heads(gradient_like(name, t, shape_of(kept_[i].view()), all), *layout_);
  const auto want_array = [&](const char* name, const ConstTensorView& of, TensorView& to) {
    if (!of.empty() && is_wanted(name)) to = gradient_like(name, DType::f64, shape_of(of), all);
  };
  want_array("bias", args_.mask.bias, g.bias);
  want_array("sink", args_.sink, g.sink);
  want_array("query_factor", args_.query_factor, g.query_factor);
  want_array("head_scale", args_.head_scale, g.head_scale);
  std::vector<NamedGradient> named_gradients;
  const auto want = [&](const NamedBorrowed& from, const std::string& prefix, nb::dict& into) {
    for (const auto& [name, array] : from.arrays)
      if (is_float(array.view().dtype) && is_wanted(prefix + name))
        named_gradients.push_back(
            {name, gradient_like(name.c_str(), DType::f64, shape_of(array.view()), into)});
  };
  want(parameters_, "parameters.", of_parameters);
  want(inputs_, "inputs.", of_inputs);
  const std::vector<NamedArray> inputs = named(inputs_);
  const ConstAttentionResult d_result(heads(d.const_view(), *layout_), dl.const_view());
  {
    const nb::gil_scoped_release free;
    plan_->backward(args_, inputs, result_, d_result, g, named_gradients, team_);
  }
  all["parameters"] = of_parameters;
  all["inputs"] = of_inputs;
  return all;
}

nb::dict Attention::scores(nb::handle names) {
  AttentionScores s;
  const std::pair<const char*, TensorView*> known[] = {{"content", &s.content},
                                                       {"scores", &s.scores},
                                                       {"capped", &s.capped},
                                                       {"probabilities", &s.probabilities},
                                                       {"query_position", &s.query_position},
                                                       {"position_key", &s.position_key},
                                                       {"position_position", &s.position_position}};
  const Index shape[] = {args_.q.batch, args_.q.heads, args_.q.tokens, args_.k.tokens};
  nb::dict all;
  for (const nb::handle h : nb::iter(names)) {
    const auto name = text_of(h);
    TensorView* to = nullptr;
    for (const auto& [word, view] : known)
      if (name == word) to = view;
    if (to == nullptr)
      refuse_field(kWho, "names",
                   "names must be of content, scores, capped, probabilities, query_position, "
                   "position_key and "
                   "position_position",
                   name);
    *to = gradient_like(name.c_str(), DType::f64, shape, all);
  }
  const std::vector<NamedArray> inputs = named(inputs_);
  const nb::gil_scoped_release free;
  plan_->scores(args_, inputs, s);
  return all;
}

AttentionPlan plan_of(nb::handle encodings, Index n_heads, Index head_dim, Index key_heads) {
  const std::vector<std::string> texts = texts_of(encodings);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return AttentionPlan(
      views, AttentionSizes{.heads = n_heads, .head_dim = head_dim, .key_heads = key_heads});
}

nb::list parameters(nb::handle encodings, Index n_heads, Index head_dim, Index key_heads) {
  nb::list list;
  for (const Parameter& p : plan_of(encodings, n_heads, head_dim, key_heads).parameters())
    list.append(to_python(p));
  return list;
}

nb::dict initial(nb::handle encodings, Index n_heads, Index head_dim, Index seed, Index key_heads) {
  nb::dict all;
  std::size_t i = 0;
  for (const Parameter& p : plan_of(encodings, n_heads, head_dim, key_heads).parameters())
    all[p.name.c_str()] =
        new_array(initial_values(p, Draws(static_cast<std::uint64_t>(seed), 0, i++)), p.shape);
  return all;
}

nb::list inputs(nb::handle encodings, Index n_heads, Index head_dim, Index key_heads) {
  nb::list list;
  for (const Input& i : plan_of(encodings, n_heads, head_dim, key_heads).inputs()) {
    nb::list shape;
    for (const Index n : i.shape) {
      if (n == kBatch)
        shape.append("batch");
      else if (n == kQueries)
        shape.append("queries");
      else if (n == kKeys)
        shape.append("keys");
      else
        shape.append(n);
    }
    list.append(nb::make_tuple(i.name, nb::tuple(shape), i.integer, i.optional));
  }
  return list;
}

}  // namespace

void add_attention(nb::module_& m) {
  nb::class_<Attention>(m, "Attention",
                        "A call of attention: its result, and what may be asked of it.")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::dict>(),
           nb::arg("encodings").none(), nb::arg("q").none(), nb::arg("k").none(),
           nb::arg("v").none(), nb::arg("options"),
           nb::sig("def __init__(self, encodings: Any, q: Any, k: Any, v: Any, options: dict[str, "
                   "Any]) -> None"))
      .def_prop_ro("out", &Attention::out, nb::sig("def out(self) -> Any"),
                   "The output, of the shape of q with the channels of v.")
      .def_prop_ro("log_sum_exp", &Attention::log_sum_exp, nb::sig("def log_sum_exp(self) -> Any"),
                   "float64 [batch, heads, queries].")
      .def_prop_ro("reads_content", &Attention::reads_content,
                   "Whether what the encodings add depends on the numbers in q, k or v.")
      .def(
          "backward", &Attention::backward, nb::arg("d_out").none(),
          nb::arg("d_log_sum_exp") = nb::none(), nb::arg("only") = nb::none(),
          nb::sig("def backward(self, d_out: Any, d_log_sum_exp: Any = None, only: Iterable[str] | "
                  "None = None) -> dict[str, Any]"),
          "Gradients of q, k, v, of what else of the call is real, and under `parameters` and "
          "`inputs` those by name. only: those that are wanted, q, bias, parameters.table ...")
      .def("scores", &Attention::scores, nb::arg("names"),
           nb::sig("def scores(self, names: Iterable[str]) -> dict[str, Any]"),
           "Arrays [batch, heads, queries, keys]: content, scores, capped, probabilities, "
           "query_position, position_key, position_position.");
  m.def("score_parameters", &parameters, nb::arg("encoding").none(), nb::kw_only(),
        nb::arg("heads"), nb::arg("head_dim"), nb::arg("key_heads") = 0,
        nb::sig("def score_parameters(encoding: EncodingLike | Iterable[EncodingLike], *, heads: "
                "int, head_dim: int, key_heads: int = 0) -> list[tuple[str, tuple[int, ...]]]"),
        "Names and shapes of what an encoding in the score learns, or several; key_heads: 0, as "
        "many as heads.");
  m.def("score_initial", &initial, nb::arg("encoding").none(), nb::kw_only(), nb::arg("heads"),
        nb::arg("head_dim"), nb::arg("seed"), nb::arg("key_heads") = 0,
        nb::sig("def score_initial(encoding: EncodingLike | Iterable[EncodingLike], *, heads: int, "
                "head_dim: int, seed: int, key_heads: int = 0) -> dict[str, Any]"),
        "What `score_parameters` lists as it starts by its publication: float64, the same on every "
        "machine.");
  m.def(
      "score_inputs", &inputs, nb::arg("encoding").none(), nb::kw_only(), nb::arg("heads"),
      nb::arg("head_dim"), nb::arg("key_heads") = 0,
      nb::sig("def score_inputs(encoding: EncodingLike | Iterable[EncodingLike], *, heads: int, "
              "head_dim: int, key_heads: int = 0) -> list[tuple[str, tuple[int | str, ...], bool, "
              "bool]]"),
      "What comes with each call: name, shape, whether of integers, whether it may be left out.");
}

}  // namespace posenc::python
