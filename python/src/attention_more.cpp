// SPDX-License-Identifier: Apache-2.0
// Attention that is no sum of terms, PaTH and selective, and results over disjoint keys joined.
#include "attention_result.h"
#include "bindings.h"
#include "interrupt.h"
#include "posenc/attention/path.h"
#include "posenc/attention/selective.h"
#include "torch.h"

namespace posenc::python {
namespace {

// The library's pool, or PyTorch's own threads for its tensors.
Executor team_of(const Options& o) {
  return o.value<bool>("torch", "must be True or False").value_or(false) ? torch_team()
                                                                         : default_executor();
}
bool is_done(const Options& o) {
  return o.value<bool>("done", "must be True or False").value_or(false);
}

class PathAttention {
 public:
  PathAttention(nb::dict arrays, nb::dict options) : options_{std::move(options)} {
    const Options given{std::move(arrays)};
    const auto take = [&](const char* name) {
      const nb::object o = given.get(name);
      const Borrowed& b = kept_.emplace_back(o, Name{"path", name}, Use::read);
      if (!layout_)
        layout_ = layout_of(b.view(), options_.value<std::string>("order", "must be a word"),
                            {"path", name});
      return heads_of(b.const_view(), *layout_, {"path", name});
    };
    args_.q = take("q");
    args_.k = take("k");
    args_.v = take("v");
    args_.w = take("w");
    args_.beta = take("beta");
    if (!given.get("log_gate").is_none()) args_.log_gate = take("log_gate");
    if (const auto scale = options_.value<double>("scale", "must be a number"))
      args_.scale = *scale;
    args_.gates_scaled =
        options_.value<bool>("gates_scaled", "must be True or False").value_or(true);
    args_.query_offset = options_.value<Index>("offset", "must be a whole number")
                             .value_or(args_.k.tokens - args_.q.tokens);
    if (const auto left = options_.value<Index>("window_left", "must be a whole number"))
      args_.window_left = *left;
    made_ = ResultArrays(kept_.front().view(), *layout_, args_.v.dim, options_.get("out"),
                         options_.get("log_sum_exp"));
    if (is_done(options_)) return;
    run_interruptible(team_of(options_),
                      [&](const Executor& e) { attend_path(args_, made_.result, e); });
  }

  const ResultArrays& made() const { return made_; }

  nb::dict backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only) const {
    for (const Borrowed& b : kept_) b.require_in_place("path");
    made_.require_in_place("path");
    const Borrowed d(d_out, {"path", "d_out"}, Use::read);
    const Borrowed dl = optional_array(d_log_sum_exp, {"path", "d_log_sum_exp"}, Use::read);
    Wanted wanted(only, "path");
    nb::dict all;
    PathGradients g;
    const std::pair<const char*, Heads*> to[] = {{"q", &g.q},       {"k", &g.k},
                                                 {"v", &g.v},       {"w", &g.w},
                                                 {"beta", &g.beta}, {"log_gate", &g.log_gate}};
    for (std::size_t n = 0; n < kept_.size(); ++n)
      if (wanted(to[n].first))
        *to[n].second = heads(
            zeros_in(all, to[n].first, gradient_type(args_.q.dtype), shape_of(kept_[n].view())),
            *layout_);
    wanted.check();
    const ConstAttentionResult d_result(heads_of(d.const_view(), *layout_, {"path", "d_out"}),
                                        dl.const_view());
    run_interruptible(team_of(options_),
                      [&](const Executor& e) { attend_path_backward(args_, d_result, g, e); });
    return all;
  }

 private:
  Options options_;
  std::deque<Borrowed> kept_;
  std::optional<HeadsLayout> layout_;
  PathArgs args_;
  ResultArrays made_;
};

class SelectiveAttention {
 public:
  SelectiveAttention(nb::handle q, nb::handle k, nb::handle v, nb::dict options)
      : call_(q, k, v, std::move(options)) {
    const Options& o = call_.options();
    AttentionArgs& a = call_.args();
    a.scale = o.value<double>("scale", "must be a number")
                  .value_or(1 / std::sqrt(static_cast<double>(a.q.dim)));
    more_.head = o.value<Index>("head", "must be a whole number").value_or(more_.head);
    more_.keep_first =
        o.value<bool>("keep_first", "must be True or False").value_or(more_.keep_first);
    masked_ = optional_array(o.get("masked"), {"selective", "masked"}, Use::write);
    if (masked_.given()) more_.masked = masked_.view();
    made_ = ResultArrays(call_.array(0), call_.layout(), head_size(a.v), o.get("out"),
                         o.get("log_sum_exp"));
    if (is_done(o)) return;
    run_interruptible(team_of(o),
                      [&](const Executor& e) { attend_selective(a, made_.result, more_, e); });
    call_.warn_of_order();
  }

  const ResultArrays& made() const { return made_; }

  nb::dict backward(nb::handle d_out, nb::handle d_log_sum_exp, nb::handle only) const {
    call_.require_in_place();
    made_.require_in_place("selective");
    const Borrowed d(d_out, {"selective", "d_out"}, Use::read);
    const Borrowed dl = optional_array(d_log_sum_exp, {"selective", "d_log_sum_exp"}, Use::read);
    Wanted wanted(only, "selective");
    nb::dict all;
    AttentionGradients g;
    const std::pair<const char*, Heads*> to[] = {{"q", &g.q}, {"k", &g.k}, {"v", &g.v}};
    std::size_t n = 0;
    for (const auto& [name, where] : to) {
      if (wanted(name) && (!only.is_none() || is_float(call_.array(n).dtype)))
        *where = heads(
            zeros_in(all, name, gradient_type(call_.args().q.dtype), shape_of(call_.array(n))),
            call_.layout());
      ++n;
    }
    wanted.check();
    const ConstAttentionResult d_result(
        heads_of(d.const_view(), call_.layout(), {"selective", "d_out"}), dl.const_view());
    run_interruptible(team_of(call_.options()), [&](const Executor& e) {
      attend_selective_backward(call_.args(), made_.result, d_result, g, more_, e);
    });
    return all;
  }

 private:
  CallArguments call_;
  Borrowed masked_;
  SelectiveOptions more_;
  ResultArrays made_;
};

// Results over disjoint keys: (out, log_sum_exp), or results of a call.
struct Parts {
  Parts(nb::handle list, std::optional<std::string_view> order) {
    const char* const rule = "must be results of attend or pairs of out and log_sum_exp";
    for (const nb::object& part : items_of(list, {"merge", "parts"}, rule)) {
      auto [out, sums] = result_or_pair(part, {"merge", "parts"}, rule);
      objects.push_back(std::move(out));
      objects.push_back(std::move(sums));
    }
    if (objects.empty()) refuse_field("merge", "parts", "must be at least one");
    for (std::size_t n = 0; n < objects.size(); n += 2) {
      const Borrowed& out = arrays.emplace_back(objects[n], Name{"merge", "out"}, Use::read);
      if (n == 0) layout = layout_of(out.view(), order, {"merge", "out"});
      const ConstHeads h = heads_of(out.const_view(), layout, {"merge", "out"});
      const Borrowed& sum =
          arrays.emplace_back(objects[n + 1], Name{"merge", "log_sum_exp"}, Use::read);
      parts.emplace_back(h, sum.const_view());
    }
  }

  std::vector<nb::object> objects;
  std::deque<Borrowed> arrays;  // out and log_sum_exp by turns
  std::vector<ConstAttentionResult> parts;
  HeadsLayout layout{};
};

nb::tuple merge_parts(nb::handle list, std::optional<std::string_view> order,
                      std::string_view normalisation, nb::object out, nb::object log_sum_exp) {
  const auto rule = word_of<Normalisation>(normalisation, {"merge", "normalisation"});
  const Parts p(list, order);
  const ResultArrays made(p.arrays.front().view(), p.layout, p.parts.front().out.dim,
                          std::move(out), std::move(log_sum_exp));
  {
    const nb::gil_scoped_release free;
    merge(p.parts, made.result, rule);
  }
  return nb::make_tuple(made.out, made.log_sum_exp);
}

nb::list merge_parts_backward(nb::handle list, nb::handle whole, nb::handle d_out,
                              nb::handle d_log_sum_exp, std::optional<std::string_view> order,
                              std::string_view normalisation) {
  const auto rule = word_of<Normalisation>(normalisation, {"merge", "normalisation"});
  const Parts p(list, order), all(nb::make_tuple(whole), order);
  const Borrowed d(d_out, {"merge", "d_out"}, Use::read);
  const Borrowed dl = optional_array(d_log_sum_exp, {"merge", "d_log_sum_exp"}, Use::read);
  nb::list gradients;
  std::vector<AttentionResult> to;
  for (std::size_t n = 0; n < p.parts.size(); ++n) {
    nb::dict made;
    const TensorView& out = p.arrays[2 * n].view();
    to.push_back({heads(zeros_in(made, "out", gradient_type(out.dtype), shape_of(out)), p.layout),
                  zeros_in(made, "log_sum_exp", DType::f64, shape_of(p.arrays[2 * n + 1].view()))});
    gradients.append(nb::make_tuple(made["out"], made["log_sum_exp"]));
  }
  const ConstAttentionResult d_whole(heads(d.const_view(), p.layout), dl.const_view());
  const nb::gil_scoped_release free;
  merge_backward(p.parts, all.parts.front(), d_whole, to, rule);
  return gradients;
}

constexpr const char* kBackward =
    "def backward(self, d_out: Any, d_log_sum_exp: Any = None, only: Iterable[str] | None = None) "
    "-> dict[str, Any]";

template <class T>
void add_result(nb::class_<T>& c, const char* gradients) {
  c.def_prop_ro(
       "out", [](const T& a) { return a.made().out; }, nb::sig("def out(self) -> Any"),
       "The output, of the shape of q with the channels of v.")
      .def_prop_ro(
          "log_sum_exp", [](const T& a) { return a.made().log_sum_exp; },
          nb::sig("def log_sum_exp(self) -> Any"), "float64 [batch, heads, queries].")
      .def("backward", &T::backward, nb::arg("d_out").none(), nb::arg("d_log_sum_exp") = nb::none(),
           nb::arg("only") = nb::none(), nb::sig(kBackward), gradients);
}

}  // namespace

void add_more_attention(nb::module_& m) {
  nb::class_<PathAttention> path(m, "PathAttention", "A call of PaTH attention and its result.");
  path.def(nb::init<nb::dict, nb::dict>(), nb::arg("arrays"), nb::arg("options"),
           nb::sig("def __init__(self, arrays: dict[str, Any], options: dict[str, Any]) -> None"));
  add_result(path,
             "Gradients of q, k, v, w, beta and log_gate; only: the names of those to compute.");
  nb::class_<SelectiveAttention> selective(m, "SelectiveAttention",
                                           "A call of selective attention and its result.");
  selective.def(
      nb::init<nb::handle, nb::handle, nb::handle, nb::dict>(), nb::arg("q").none(),
      nb::arg("k").none(), nb::arg("v").none(), nb::arg("options"),
      nb::sig("def __init__(self, q: Any, k: Any, v: Any, options: dict[str, Any]) -> None"));
  add_result(selective, "Gradients of q, k and v; only: the names of those to compute.");
  m.def(
      "merge", &merge_parts, nb::arg("parts").none(), nb::kw_only(), nb::arg("order") = nb::none(),
      nb::arg("normalisation") = "softmax", nb::arg("out") = nb::none(),
      nb::arg("log_sum_exp") = nb::none(),
      nb::sig("def merge(parts: Iterable[Any], *, order: str | None = None, normalisation: str = "
              "'softmax', out: Any = None, log_sum_exp: Any = None) -> tuple[Any, Any]"),
      "Joins results over disjoint keys: (out, log_sum_exp) over all of them. parts: results of "
      "`attend`, or pairs of out and log_sum_exp [batch, heads, queries]. normalisation: softmax, "
      "or stick_breaking with parts from the last keys to the first. A sink belongs to one part "
      "only. Calls with gates, kernels over keys or mixed heads do not merge.");
  m.def("merge_backward", &merge_parts_backward, nb::arg("parts").none(), nb::arg("whole").none(),
        nb::arg("d_out").none(), nb::arg("d_log_sum_exp") = nb::none(), nb::kw_only(),
        nb::arg("order") = nb::none(), nb::arg("normalisation") = "softmax",
        nb::sig(
            "def merge_backward(parts: Iterable[Any], whole: Any, d_out: Any, d_log_sum_exp: Any = "
            "None, *, order: str | None = None, normalisation: str = 'softmax') -> "
            "list[tuple[Any, Any]]"),
        "The gradients of each part's out and log_sum_exp, for its `backward`. whole: the result "
        "of `merge`.");
}

}  // namespace posenc::python
