// SPDX-License-Identifier: Apache-2.0
// Attention with position terms of numpy's arrays, and every gradient of it.

#include <algorithm>

#include "attention_call.h"
#include "attention_drawn.h"
#include "attention_regions.h"
#include "attention_result.h"
#include "bindings.h"
#include "interrupt.h"
#include "plan_cache.h"
#include "posenc/absolute/initial.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/attention/locality.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "torch.h"

namespace posenc::python {
namespace {

nb::list listed(const std::vector<PlanExplanation::Other>& engines) {
  nb::list list;
  for (const PlanExplanation::Other& o : engines) {
    nb::dict other;
    other["engine"] = o.engine, other["why_not"] = o.why_not;
    list.append(other);
  }
  return list;
}

constexpr const char* kWho = kAttentionName;

// One call: its arrays, its plan, its result.
class Attention {
 public:
  Attention(nb::handle encodings, nb::handle q, nb::handle k, nb::handle v, nb::dict options);

  nb::object out() const { return made_.out; }
  nb::object log_sum_exp() const { return made_.log_sum_exp; }
  nb::object backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only,
                      nb::handle whole);
  nb::dict scores(nb::handle names);
  nb::object probabilities();
  nb::tuple locality();
  nb::dict explain_plan() const;
  bool reads_content() const { return lowered_->reads_content(); }

 private:
  void make_plan(nb::handle encodings);
  void run();
  void require_in_place() const;
  std::vector<NamedArray> named(const NamedBorrowed&) const;
  AttentionArgs& args() { return call_.args(); }
  const Options& options() const { return call_.options(); }

  CallArguments call_;
  NamedBorrowed parameters_, inputs_;
  std::shared_ptr<KeptPlan> plan_;
  std::optional<LoweredAttention> lowered_;
  std::optional<Regions> regions_;
  Executor team_ = default_executor();
  ResultArrays made_;
};

Attention::Attention(nb::handle encodings, nb::handle q, nb::handle k, nb::handle v,
                     nb::dict options)
    : call_(q, k, v, std::move(options)),
      parameters_(call_.options().get("parameters"), kWho),
      inputs_(call_.options().get("inputs"), kWho) {
  make_plan(encodings);
  made_ = ResultArrays(call_.array(0), call_.layout(), head_size(args().v),
                       call_.options().get("out"), call_.options().get("log_sum_exp"));
  run();
}

void Attention::make_plan(nb::handle encodings) {
  const std::vector<std::string> texts = scheme_texts(encodings, kWho);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  AttentionSizes sizes{.heads = args().q.heads,
                       .head_dim = args().q.dim,
                       .key_heads = args().k.heads,
                       .value_dim = head_size(args().v),
                       .scale = options().value<double>("scale", "must be a number")};
  const Index length = options().value<Index>("length", "must be a whole number").value_or(0);
  using Distances = std::vector<Index>;
  const char* const rule = "must be whole numbers that rise from 0";
  const auto past = options().value<Distances>("past_distances", rule);
  const auto future = options().value<Distances>("future_distances", rule);
  if (future && !past) refuse_field(kWho, "future_distances", "belongs to past_distances");
  const auto make = [&] {
    if (!past) return AttentionPlan(views, sizes, length);
    return drawn_plan(views, sizes, length, {*past, future ? *future : Distances{}});
  };
  // Drawn distances are others in each call.
  plan_ =
      past ? std::make_shared<KeptPlan>(make()) : kept_plan(plan_key(texts, sizes, length), make);
  const nb::object regions = options().get("regions");
  if (regions.is_none()) return;
  regions_.emplace(regions, texts, call_);
  args().regions = regions_->list();
}

std::vector<NamedArray> Attention::named(const NamedBorrowed& from) const {
  std::vector<NamedArray> list;
  for (const auto& [name, array] : from.arrays) list.push_back({name, array.const_view()});
  return list;
}

void Attention::run() {
  const std::vector<NamedArray> parameters = named(parameters_), inputs = named(inputs_);
  // Out and log_sum_exp are those of an earlier call, of which gradients are wanted.
  if (options().value<bool>("torch", "must be True or False").value_or(false)) team_ = torch_team();
  const bool done = options().value<bool>("done", "must be True or False").value_or(false);
  {
    const nb::gil_scoped_release free;
    lowered_ =
        plan_->lower(parameters, distance_ranges(args().query_positions, args().key_positions));
  }
  if (done) return;
  run_interruptible(team_,
                    [&](const Executor& e) { lowered_->forward(args(), inputs, made_.result, e); });
  call_.warn_of_order();
}

void Attention::require_in_place() const {
  call_.require_in_place();
  parameters_.require_in_place(kWho);
  inputs_.require_in_place(kWho);
  if (regions_) regions_->require_in_place();
  made_.require_in_place(kWho);
}

// A result over more keys than the call's: of a call, or a pair.
struct Whole {
  Whole(nb::handle h, HeadsLayout layout) {
    if (h.is_none()) return;
    const auto [o, l] = result_or_pair(
        h, {kWho, "whole"}, "must be a result of attend or a pair of out and log_sum_exp");
    out.emplace(o, Name{kWho, "whole out"}, Use::read);
    sums.emplace(l, Name{kWho, "whole log_sum_exp"}, Use::read);
    result = {heads(out->const_view(), layout), sums->const_view()};
    result.whole = true;
  }
  std::optional<Borrowed> out, sums;
  ConstAttentionResult result;
};

nb::object Attention::backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only,
                               nb::handle whole) {
  require_in_place();
  const Borrowed d(d_out, {kWho, "d_out"}, Use::read);
  const Borrowed dl = optional_array(d_log_sum_exp, {kWho, "d_log_sum_exp"}, Use::read);
  const DType t = gradient_type(args().q.dtype);
  Wanted is_wanted(only, kWho);
  nb::dict all, of_parameters, of_inputs;
  AttentionGradients g;
  g.overwrite = true;
  const std::pair<const char*, Heads*> of_heads[] = {{"q", &g.q}, {"k", &g.k}, {"v", &g.v}};
  for (std::size_t i = 0; i < 3; ++i)
    // q8_0 blocks have no gradient: it is left out, or rejected if `only` names it.
    if (const auto& [name, to] = of_heads[i];
        is_wanted(name) && (!only.is_none() || is_float(call_.array(i).dtype)))
      *to = heads(array_in(all, name, t, shape_of(call_.array(i)), false),
                  i == 0 ? call_.layout() : call_.key_layout());
  const auto want_array = [&](const char* name, const ConstTensorView& of, TensorView& to) {
    if (!of.empty() && is_wanted(name)) to = zeros_in(all, name, DType::f64, shape_of(of));
  };
  want_array("bias", args().mask.bias, g.bias);
  want_array("sink", args().sink, g.sink);
  want_array("query_factor", args().query_factor, g.query_factor);
  want_array("head_scale", args().head_scale, g.head_scale);
  want_array("mix_before", args().mix_before, g.mix_before);
  want_array("mix_after", args().mix_after, g.mix_after);
  const std::vector<QK> of_regions =
      regions_ ? regions_->gradients(all, is_wanted) : std::vector<QK>();
  g.regions = of_regions;
  std::vector<NamedGradient> named_gradients;
  const auto want = [&](const NamedBorrowed& from, const std::string& prefix, nb::dict& into) {
    for (const auto& [name, array] : from.arrays)
      if (is_float(array.view().dtype) && is_wanted(prefix + name))
        named_gradients.push_back(
            {name, zeros_in(into, name.c_str(), DType::f64, shape_of(array.view()))});
  };
  want(parameters_, "parameters.", of_parameters);
  want(inputs_, "inputs.", of_inputs);
  is_wanted.check();
  const std::vector<NamedArray> inputs = named(inputs_);
  const ConstAttentionResult d_result(heads_of(d.const_view(), call_.layout(), {kWho, "d_out"}),
                                      dl.const_view());
  const Whole of_whole(whole, call_.layout());
  const ConstAttentionResult result =
      whole.is_none() ? ConstAttentionResult(made_.result) : of_whole.result;
  run_interruptible(team_, [&](const Executor& e) {
    lowered_->backward(args(), inputs, result, d_result, g, named_gradients, e);
  });
  all["parameters"] = of_parameters;
  all["inputs"] = of_inputs;
  return all;
}

nb::dict Attention::scores(nb::handle names) {
  require_in_place();
  AttentionScores s;
  const std::pair<const char*, TensorView*> known[] = {{"content", &s.content},
                                                       {"scores", &s.scores},
                                                       {"capped", &s.capped},
                                                       {"probabilities", &s.probabilities},
                                                       {"query_position", &s.query_position},
                                                       {"position_key", &s.position_key},
                                                       {"position_position", &s.position_position}};
  const Index shape[] = {args().q.batch, args().q.heads, args().q.tokens, call_.keys()};
  nb::dict all;
  for (const nb::object& h : items_of(names, {kWho, "names"}, "must be a list of words")) {
    const auto name = text_of(h);
    TensorView* to = nullptr;
    for (const auto& [word, view] : known)
      if (name == word) to = view;
    if (to == nullptr)
      refuse_field(kWho, "names",
                   "must be of content, scores, capped, probabilities, query_position, "
                   "position_key and "
                   "position_position",
                   name);
    *to = zeros_in(all, name.c_str(), DType::f64, shape);
  }
  const std::vector<NamedArray> inputs = named(inputs_);
  run_interruptible(team_, [&](const Executor& e) { lowered_->scores(args(), inputs, s, e); });
  return all;
}

nb::object Attention::probabilities() {
  return scores(nb::make_tuple("probabilities"))["probabilities"];
}

nb::tuple Attention::locality() {
  const nb::object p = probabilities();
  const Borrowed view(p, {kWho, "probabilities"}, Use::read);
  const Locality l =
      posenc::locality(view.const_view(), args().query_positions, args().key_positions);
  const Index n = static_cast<Index>(l.distance.size()), sizes[] = {args().q.heads, n};
  return nb::make_tuple(new_array(l.distance, std::span(sizes).last(1)), new_array(l.mass, sizes));
}

nb::dict Attention::explain_plan() const {
  require_in_place();
  const PlanExplanation e = lowered_->explain(call_.args(), named(inputs_));
  nb::dict all;
  nb::list terms;
  for (const PlanExplanation::ExplainedTerm& t : e.terms) {
    nb::dict term;
    term["name"] = t.name, term["class"] = std::string(enum_text(t.of));
    terms.append(term);
  }
  all["engine"] = e.engine, all["backward_engine"] = e.backward_engine;
  all["others"] = listed(e.others), all["backward_others"] = listed(e.backward_others);
  all["workspace_bytes"] = e.workspace_bytes, all["terms"] = terms;
  return all;
}

// Of what learns and reads inputs; which length a scaling has is the call's to say.
AttentionPlan plan_of(nb::handle encodings, Index n_heads, Index head_dim, Index key_heads) {
  std::vector<std::string> texts = scheme_texts(encodings, kWho);
  for (std::string& text : texts)
    if (const Encoding e = parse_encoding(text); is_rotary(e.scheme)) text = to_text(e.scheme);
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

constexpr const char* kGradients =
    "Gradients of q, k, v and other real arguments by name, and of `parameters` and `inputs` "
    "by name. only: names of those to compute, such as q, bias, parameters.table. whole: the "
    "result over more keys than the call's, (out, log_sum_exp) of `merge`; the gradients are "
    "then the call's share of those of the whole, and add up over the parts.";

}  // namespace

void add_attention(nb::module_& m) {
  nb::class_<Attention>(m, "Attention",
                        "The result of a call of attention, with its gradients and scores.")
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
                   "Whether terms of the encodings depend on the numbers in q, k or v.")
      .def(
          "backward", &Attention::backward, nb::arg("d_out").none(),
          nb::arg("d_log_sum_exp") = nb::none(), nb::arg("only") = nb::none(),
          nb::arg("whole") = nb::none(),
          nb::sig("def backward(self, d_out: Any, d_log_sum_exp: Any = None, only: Iterable[str] | "
                  "None = None, whole: Any = None) -> dict[str, Any]"),
          kGradients)
      .def("scores", &Attention::scores, nb::arg("names"),
           nb::sig("def scores(self, names: Iterable[str]) -> dict[str, Any]"),
           "Arrays [batch, heads, queries, keys]: content, scores, capped, probabilities, "
           "query_position, position_key, position_position.")
      .def_prop_ro("probabilities", &Attention::probabilities,
                   nb::sig("def probabilities(self) -> Any"),
                   "What each key contributes to a query, float64 [batch, heads, queries, keys]; "
                   "computed at each access.")
      .def("explain_plan", &Attention::explain_plan,
           nb::sig("def explain_plan(self) -> dict[str, Any]"),
           "The `engine` of the call, why `others` do not run it, `workspace_bytes` and the class "
           "of each of the `terms`.")
      .def("locality", &Attention::locality, nb::sig("def locality(self) -> tuple[Any, Any]"),
           "The distances, query - key, and the share of the attention at each, float64 [heads, "
           "distances]: the mean over the queries that see a key.");
  m.def("lowered_count", &lowered_count,
        "How often this process lowered encodings for a call; equal parameters and distances in a "
        "row are lowered once.");
  m.def("score_parameters", &parameters, nb::arg("encoding").none(), nb::kw_only(),
        nb::arg("heads"), nb::arg("head_dim"), nb::arg("key_heads") = 0,
        nb::sig("def score_parameters(encoding: EncodingLike | Iterable[EncodingLike], *, heads: "
                "int, head_dim: int, key_heads: int = 0) -> list[tuple[str, tuple[int, ...]]]"),
        "Names and shapes of the learned parameters of relative encodings; key_heads: 0, as "
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
