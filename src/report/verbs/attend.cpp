// SPDX-License-Identifier: Apache-2.0
// posenc attend: attention of queries, keys and values from files, with every term of a SCHEME or a
// model's layer, its gradients and its scores.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "attend_call.h"
#include "call_grid.h"
#include "call_words.h"
#include "notes.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/attention/locality.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

Array& add(Arrays& all, const std::string& name, std::vector<Index> shape) {
  return all.emplace(name, make_array(DType::f64, std::move(shape))).first->second;
}

void add_gradients(const AttendOptions& o, const AttendCall& c, const LoweredAttention& lowered,
                   const NamedFiles& files, Arrays& all) {
  Array given = read_array(o.gradient, "grad_out");
  if (given.shape != c.out.shape)
    throw InputError(fmt::format("{}: must have the shape of out, [{}], got [{}]", o.gradient,
                                 fmt::join(c.out.shape, ", "), fmt::join(given.shape, ", ")));
  given = as_doubles(given);
  const auto of_call = [&](const char* name, HeadsLayout layout) {
    return heads(add(all, std::string("grad_") + name, c.arrays.at(name).shape).view(), layout);
  };
  AttentionGradients g;
  g.q = of_call("q", c.layout);
  g.k = of_call("k", c.key_layout);
  g.v = of_call("v", c.key_layout);
  std::vector<NamedGradient> named;
  const auto by_name = [&](std::string_view name, const ConstTensorView& v) {
    Array& a = add(all, "grad_" + std::string(name),
                   std::vector<Index>(v.shape.begin(), v.shape.begin() + v.rank));
    named.push_back({name, a.view()});
  };
  for (const NamedArray& p : files.parameters()) by_name(p.name, p.array);
  for (const NamedArray& i : files.inputs())
    if (i.array.dtype == DType::f64) by_name(i.name, i.array);
  const ConstAttentionResult d(heads(std::as_const(given).view(), c.layout), {});
  lowered.backward(c.args, files.inputs(), c.result, d, g, named);
}

void add_locality(const AttendCall& c, const Array& probabilities, Arrays& all) {
  const Locality l = locality(probabilities.view(), c.query_positions, c.key_positions);
  const auto n = static_cast<Index>(l.distance.size());
  Array& mass = add(all, "locality", {c.args.q.heads, n});
  if (n > 0) std::memcpy(mass.bytes.data(), l.mass.data(), mass.bytes.size());
  Array distance = make_array(DType::i64, {n});
  if (n > 0) std::memcpy(distance.bytes.data(), l.distance.data(), distance.bytes.size());
  all.emplace("locality_distance", std::move(distance));
}

void add_scores(const AttendOptions& o, const AttendCall& c, const LoweredAttention& lowered,
                const NamedFiles& files, Arrays& all) {
  if (!o.scores && !o.terms && !o.probabilities && !o.locality) return;
  const std::vector<Index> shape{c.args.q.batch, c.args.q.heads, c.args.q.tokens,
                                 paged_keys(c.args)};
  AttentionScores s;
  Array unasked;
  if (o.scores) {
    s.scores = add(all, "scores", shape).view();
    s.capped = add(all, "capped", shape).view();
  }
  if (o.terms) {
    s.query_position = add(all, "query_position", shape).view();
    s.position_key = add(all, "position_key", shape).view();
    s.position_position = add(all, "position_position", shape).view();
  }
  if (o.scores || o.terms) s.content = add(all, o.terms ? "content_key" : "content", shape).view();
  if (o.probabilities) {
    s.probabilities = add(all, "probabilities", shape).view();
  } else if (o.locality) {
    unasked = make_array(DType::f64, shape);
    s.probabilities = unasked.view();
  }
  lowered.scores(c.args, files.inputs(), s);
  if (o.scores && o.terms) all.emplace("content", all.at("content_key"));
  if (o.locality) add_locality(c, o.probabilities ? all.at("probabilities") : unasked, all);
}

Json listed(const std::vector<PlanExplanation::Other>& others) {
  Json list = Json::array();
  for (const PlanExplanation::Other& o : others)
    list.push(Json::object({{"engine", o.engine}, {"why_not", o.why_not}}));
  return list;
}

// Which engine runs the call, and what its terms cost.
std::string explained(const PlanExplanation& e, bool json) {
  Json terms = Json::array();
  std::string text = fmt::format("engine           {}\nbackward_engine  {}\nworkspace_bytes  {}\n",
                                 e.engine, e.backward_engine, e.workspace_bytes);
  for (const PlanExplanation::Other& o : e.others)
    text += fmt::format("not {}: {}\n", o.engine, o.why_not);
  if (e.backward_engine != e.engine)  // else for the same reasons
    for (const PlanExplanation::Other& o : e.backward_others)
      text += fmt::format("backward not {}: {}\n", o.engine, o.why_not);
  for (const PlanExplanation::ExplainedTerm& t : e.terms) {
    const std::string of(enum_text(t.of));
    terms.push(Json::object({{"name", t.name}, {"class", of}}));
    text += fmt::format("term {}: {}\n", t.name, of);
  }
  if (!json) return text;
  return Json::object({{"engine", e.engine},
                       {"backward_engine", e.backward_engine},
                       {"others", listed(e.others)},
                       {"backward_others", listed(e.backward_others)},
                       {"workspace_bytes", static_cast<std::int64_t>(e.workspace_bytes)},
                       {"terms", terms}})
             .dump(2) +
         "\n";
}

}  // namespace

Report attend(const AttendOptions& o, const Request& r) {
  if (o.explain ? !r.path.empty() : r.printed())
    throw UsageError(o.explain ? "--explain computes nothing: it goes without -o"
                               : "--output is required, or --explain");
  AttendCall c;
  SubjectOptions chosen = o.subject;
  chosen.sizes = sizes_of_call(c, o);
  const Subject subject = read_subject_on_grid(chosen, o.grid);
  const ScoreEncodings e = score_encodings(subject, chosen, o.with);
  read_call(c, o, e);
  const AttentionPlan plan = plan_of_call(c, o, e);
  NamedFiles files;
  files.read_parameters(plan.parameters(), o.params, o.subject.start, e);
  files.read_inputs(plan.inputs(), o.inputs);
  const LoweredAttention lowered =
      plan.lower(files.parameters(), distance_ranges(c.args.query_positions, c.args.key_positions));
  if (o.explain) return {.text = explained(lowered.explain(c.args, files.inputs()), r.json)};
  lowered.forward(c.args, files.inputs(), c.result);
  if (!o.positions.empty() || !o.key_positions.empty())
    if (const std::string text = order_conflict(c.args); !text.empty())
      note("warning: " + text + "\n");
  Arrays all;
  if (!o.gradient.empty()) add_gradients(o, c, lowered, files, all);
  add_scores(o, c, lowered, files, all);
  all.emplace("out", std::move(c.out));
  all.emplace("log_sum_exp", std::move(c.log_sum_exp));
  return {.schema = "posenc.attend/1", .arrays = std::move(all)};
}

namespace {

Verb::Run declare_attend(Words& w) {
  auto o = std::make_shared<AttendOptions>();
  w.subject(o->subject, Takes::model_or_scheme);
  add_tensors(w, *o);
  add_places(w, *o,
             "positions of the queries: A:B[:STEP], a list or an .npy (default: their order)");
  w.text("--grid", o->grid, "HxW",
         "the tokens are the cells of this grid, row by row, or --positions counts its cells; a\n"
         "model's tables of each axis are resized to it, as its program does (default: the "
         "scheme's own grid)");
  add_packing(w, *o);
  w.real("--softcap", o->softcap, "C",
         "q.k becomes C tanh(q.k / C); 0 disables it (default: a model's)");
  w.text("--gradient", o->gradient, "F",
         "the gradient of out: writes grad_q, grad_k, grad_v and grad_NAME of every parameter and "
         "input")
      .file();
  w.flag("--scores", o->scores, "write content (scaled q.k), scores and capped");
  w.flag("--terms", o->terms, "write content_key, query_position, position_key, position_position");
  w.flag("--probabilities", o->probabilities, "write probabilities");
  w.flag("--locality", o->locality,
         "write locality [heads, distances]: attention mass by distance, query - key");
  w.flag("--exact", o->exact, "compute in double, even if the fast engine supports the call");
  w.flag("--explain", o->explain,
         "instead of -o: which engine runs the call, why the others do not, and the class of each "
         "term");
  w.output(Holds::arrays, "F.safetensors: out, log_sum_exp and the arrays of the other options");
  return [o](const Request& r) { return attend(*o, r); };
}

}  // namespace

const Verb attend_verb{
    "attend", "compute attention of q, k and v from files, with position terms and gradients",
    &declare_attend,
    "Examples:\n  posenc attend \"t5 bidirectional=false\" --q q.npy --k k.npy --v v.npy \\\n"
    "    --params t5.safetensors --mask causal -o out.safetensors\n"
    "  posenc attend models/bloom --layer 3 --q q.npy --k k.npy --v v.npy --order bhtd --scores "
    "-o out.safetensors\n"
    "  posenc attend alibi --q x.safetensors:q --k x.safetensors:k --v x.safetensors:v --mask "
    "window=128,0 \\\n    --gradient d_out.npy -o out.safetensors"};

}  // namespace posenc::report
