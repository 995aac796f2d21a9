// SPDX-License-Identifier: Apache-2.0
// Attention over several processes, whose group is an object of Python.
#include "posenc/parallel/ring.h"

#include "attention_call.h"
#include "attention_result.h"
#include "bindings.h"
#include "interrupt.h"
#include "plan_cache.h"
#include "torch.h"

namespace posenc::python {
namespace {

// An object with rank, size, start(to, sent, source, received, channel), test(transfer) and
// finish(transfer, seconds). sent and received are writable memoryviews or None; a transfer that is
// None is lost. If a method raises, the call ends with that error.
class GroupOfPython {
 public:
  explicit GroupOfPython(nb::object group)
      : group_(std::move(group)),
        rank_(nb::cast<Index>(group_.attr("rank"))),
        size_(nb::cast<Index>(group_.attr("size"))) {}
  GroupOfPython(const GroupOfPython&) = delete;

  Communicator communicator() { return {this, rank, size, start, test, finish}; }
  // With the GIL: raises what a method raised.
  void raise() {
    if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
  }

 private:
  static GroupOfPython& of(void* self) { return *static_cast<GroupOfPython*>(self); }
  static Index rank(void* self) { return of(self).rank_; }
  static Index size(void* self) { return of(self).size_; }

  // fn() with the GIL. If it raises, the error is kept for raise(), and the result is `otherwise`.
  template <class T, class F>
  T call(T otherwise, const F& fn) noexcept {
    const nb::gil_scoped_acquire hold;
    try {
      return fn();
    } catch (...) {
      if (!problem_) problem_ = std::current_exception();
      return otherwise;
    }
  }
  static nb::object memory(const void* data, std::size_t bytes) {
    if (bytes == 0) return nb::none();
    PyObject* const m =
        PyMemoryView_FromMemory(static_cast<char*>(const_cast<void*>(data)),
                                static_cast<Py_ssize_t>(bytes), 0x200 /* PyBUF_WRITE */);
    if (m == nullptr) nb::raise_python_error();
    return nb::steal(m);
  }
  static TransferState state(const nb::object& done) {
    return nb::cast<bool>(done) ? TransferState::done : TransferState::under_way;
  }

  static void* start(void* self, const Transfer& t) {
    return of(self).call<void*>(nullptr, [&] {
      nb::object transfer =
          of(self).group_.attr("start")(t.to, memory(t.sent, t.sent_bytes), t.from,
                                        memory(t.received, t.received_bytes), t.channel);
      return transfer.is_none() ? nullptr : static_cast<void*>(transfer.release().ptr());
    });
  }
  static TransferState test(void* self, void* transfer) {
    return of(self).call(TransferState::lost, [&] {
      return state(of(self).group_.attr("test")(nb::handle(static_cast<PyObject*>(transfer))));
    });
  }
  static TransferState finish(void* self, void* transfer, double seconds) {
    return of(self).call(TransferState::lost, [&] {
      const nb::object t = nb::steal(static_cast<PyObject*>(transfer));
      const TransferState s = state(of(self).group_.attr("finish")(t, seconds));
      return s == TransferState::done ? s : TransferState::late;
    });
  }

  nb::object group_;
  Index rank_, size_;
  std::exception_ptr problem_;
};

constexpr const char* kWho = kAttentionName;

// A call of this rank, and its result.
class RingAttention {
 public:
  // distance: the longest of the sequence.
  RingAttention(nb::handle encodings, nb::handle q, nb::handle k, nb::handle v, nb::object group,
                Index distance, nb::dict options)
      : call_(q, k, v, std::move(options)),
        parameters_(call_.options().get("parameters"), kWho),
        group_(std::move(group)) {
    const Options& o = call_.options();
    const std::vector<std::string> texts = scheme_texts(encodings, kWho);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const AttentionArgs& a = call_.args();
    const AttentionSizes sizes{.heads = a.q.heads,
                               .head_dim = a.q.dim,
                               .key_heads = a.k.heads,
                               .value_dim = a.v.dim,
                               .scale = o.value<double>("scale", "must be a number")};
    plan_ = kept_plan(plan_key(texts, sizes, 0), [&] { return AttentionPlan(views, sizes); });
    ring_.seconds = o.value<double>("seconds", "must be a number").value_or(ring_.seconds);
    ring_.agreement = o.value<Index>("agreement", "must be a whole number").value_or(0);
    made_ =
        ResultArrays(call_.array(0), call_.layout(), a.v.dim, o.get("out"), o.get("log_sum_exp"));
    {
      const nb::gil_scoped_release free;
      const DistanceRange all{-distance, distance, {}};
      const std::vector<DistanceRange> axes(static_cast<std::size_t>(a.query_positions.axes), all);
      lowered_ = plan_->lower(parameters(), axes);
    }
    if (o.value<bool>("done", "must be True or False").value_or(false)) return;
    run([&](const Communicator& c, const Executor& e) {
      ring_attend(*lowered_, call_.args(), {}, made_.result, c, ring_, e);
    });
  }

  nb::object out() const { return made_.out; }
  nb::object log_sum_exp() const { return made_.log_sum_exp; }

  nb::dict backward(nb::handle d_out, nb::handle only) {
    const Borrowed d(d_out, {kWho, "d_out"}, Use::read);
    Wanted is_wanted(only, kWho);
    const DType t = gradient_type(call_.args().q.dtype);
    nb::dict all, of_parameters;
    AttentionGradients g;
    g.overwrite = true;
    const std::pair<const char*, Heads*> of_heads[] = {{"q", &g.q}, {"k", &g.k}, {"v", &g.v}};
    for (std::size_t i = 0; i < 3; ++i)
      if (const auto& [name, to] = of_heads[i]; is_wanted(name))
        *to = heads(array_in(all, name, t, shape_of(call_.array(i)), false), call_.layout());
    if (!call_.args().sink.empty() && is_wanted("sink"))
      g.sink = zeros_in(all, "sink", DType::f64, shape_of(call_.args().sink));
    std::vector<NamedGradient> named;
    for (const auto& [name, array] : parameters_.arrays)
      if (is_wanted("parameters." + name))
        named.push_back(
            {name, zeros_in(of_parameters, name.c_str(), DType::f64, shape_of(array.view()))});
    const ConstAttentionResult d_result(heads(d.const_view(), call_.layout()), {});
    run([&](const Communicator& c, const Executor& e) {
      ring_attend_backward(*lowered_, call_.args(), {}, made_.result, d_result, g, named, c, ring_,
                           e);
    });
    all["parameters"] = of_parameters;
    return all;
  }

 private:
  std::vector<NamedArray> parameters() const {
    std::vector<NamedArray> list;
    for (const auto& [name, array] : parameters_.arrays) list.push_back({name, array.const_view()});
    return list;
  }
  template <class F>
  void run(const F& fn) {
    try {
      run_interruptible(torch_team(), [&](const Executor& e) { fn(group_.communicator(), e); });
    } catch (const RankLost&) {
      group_.raise();
      throw;
    }
  }

  CallArguments call_;
  NamedBorrowed parameters_;
  GroupOfPython group_;
  std::shared_ptr<KeptPlan> plan_;
  std::optional<LoweredAttention> lowered_;
  RingOptions ring_;
  ResultArrays made_;
};

}  // namespace

void add_ring(nb::module_& m) {
  nb::class_<RingAttention>(
      m, "RingAttention", "A call of attention over several processes, and its result on this one.")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::object, Index, nb::dict>(),
           nb::arg("encodings").none(), nb::arg("q").none(), nb::arg("k").none(),
           nb::arg("v").none(), nb::arg("group"), nb::arg("distance"), nb::arg("options"),
           nb::sig("def __init__(self, encodings: Any, q: Any, k: Any, v: Any, group: Any, "
                   "distance: int, options: dict[str, Any]) -> None"))
      .def_prop_ro("out", &RingAttention::out, nb::sig("def out(self) -> Any"))
      .def_prop_ro("log_sum_exp", &RingAttention::log_sum_exp,
                   nb::sig("def log_sum_exp(self) -> Any"))
      .def("backward", &RingAttention::backward, nb::arg("d_out").none(),
           nb::arg("only") = nb::none(),
           nb::sig("def backward(self, d_out: Any, only: Iterable[str] | None = None) -> dict[str, "
                   "Any]"),
           "Gradients of q, k, v and sink, and of `parameters` by name.");
}

}  // namespace posenc::python
