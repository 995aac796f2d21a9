// SPDX-License-Identifier: Apache-2.0
// Handlers that XLA calls on a CPU, without the interpreter: rotation, rows composed at the input.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "bindings.h"
#include "input_cache.h"
#include "input_lookup.h"
#include "input_scheme.h"
#include "posenc/posenc.h"
#include "xla.h"

namespace posenc::python {
namespace {

constexpr const char* kJax = "jax";

DType dtype_of_xla(int type) {
  constexpr std::pair<int, DType> known[] = {{4, DType::i32},  {5, DType::i64},  {10, DType::f16},
                                             {11, DType::f32}, {12, DType::f64}, {16, DType::bf16}};
  for (const auto& [number, dtype] : known)
    if (number == type) return dtype;
  refuse_field(kJax, "arrays",
               "must be int32, int64, float16, bfloat16, float32 or float64; XLA's type is",
               Index(type));
}

// Buffers are dense, the last axis first in memory.
TensorView tensor_of(const xla::Buffer& b) {
  static double nothing;  // an array without elements has no memory
  const std::span<const Index> shape(b.dims, static_cast<std::size_t>(b.rank));
  return tensor(b.data == nullptr ? &nothing : b.data, dtype_of_xla(b.dtype), shape);
}

class Call {
 public:
  explicit Call(const xla::CallFrame& f) : f_(f) {}
  Index arguments() const { return f_.arguments.size; }
  ConstTensorView argument(Index i) const { return tensor_of(*f_.arguments.buffers[i]); }
  TensorView result(Index i) const { return tensor_of(*f_.results.buffers[i]); }
  std::string_view text(std::string_view name) const {
    const xla::Attributes& a = f_.attributes;
    for (Index i = 0; i < a.size; ++i) {
      const xla::Text& n = *a.names[i];
      if (std::string_view(n.data, n.size) != name || a.types[i] != xla::kTextType) continue;
      const auto* t = static_cast<const xla::Text*>(a.values[i]);
      return {t->data, t->size};
    }
    refuse(kJax, "the call must have the text", name);
  }
  // "": none.
  Context context() const {
    const std::string word(text("context"));
    return {word.empty() ? 0 : std::stoll(word)};
  }

 private:
  const xla::CallFrame& f_;
};

// What was made for a key before, else what `make` gives now.
template <class Plan, class F>
Plan kept(const std::string& key, const F& make) {
  static std::mutex mutex;
  static auto* const plans = new std::unordered_map<std::string, Plan>;
  {
    const std::lock_guard lock(mutex);
    const auto found = plans->find(key);
    if (found != plans->end()) return found->second;
  }
  Plan plan = make();
  const std::lock_guard lock(mutex);
  if (plans->size() >= 256) plans->clear();
  plans->emplace(key, plan);
  return plan;
}

std::string key_of(const Call& c, DType dtype) {
  return std::string(c.text("encoding")) + '\n' + std::string(c.text("context")) + '\n' +
         std::string(dtype_name(dtype));
}

// x, positions -> y
void rotate_call(const Call& c) {
  const ConstTensorView x = c.argument(0);
  const auto plan = kept<RotaryPlan>(key_of(c, x.dtype), [&] {
    return RotaryPlan(resolve(parse_encoding(c.text("encoding")), c.context()), x.dtype);
  });
  const HeadsLayout layout = layout_from_name(c.text("order"));
  plan.apply(ConstQK{heads(x, layout), {}}, QK{heads(c.result(0), layout), {}},
             positions(c.argument(1)),
             c.text("mode") == "gradient" ? RotateMode::gradient : RotateMode::forward);
}

// A scheme at the input with the parameters that are arguments `first` and after.
std::shared_ptr<const LoweredRows> rows_of(const Call& c, DType dtype, Index first) {
  Encoding encoding = parse_encoding(c.text("encoding"));
  const std::vector<Parameter> parameters = parameters_of(encoding);
  if (c.arguments() - first != static_cast<Index>(parameters.size()))
    refuse_field(kJax, "parameters", "must be those of the encoding, one array each",
                 c.arguments() - first);
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    values.push_back(
        parameter_values(kInput, parameters[i], c.argument(first + static_cast<Index>(i))));
  return lowered_rows(std::move(encoding), c.context(), dtype, std::move(values));
}

// Where the parameters, arguments `first` and after, are tables that are added.
std::optional<TableParts> tables_of(const Call& c, const ConstTensorView& x,
                                    const ConstTensorView& positions, Index first) {
  std::vector<ConstTensorView> parameters;
  for (Index i = first; i < c.arguments(); ++i) parameters.push_back(c.argument(i));
  return table_parts(std::string(c.text("encoding")), x, positions, parameters);
}

// x, positions, parameters -> y
void compose_call(const Call& c) {
  const ConstTensorView x = c.argument(0);
  const auto tables = tables_of(c, x, c.argument(1), 2);
  if (tables && add_tables(*tables, c.result(0))) return;
  rows_of(c, x.dtype, 2)->plan.apply(x, positions(c.argument(1)), c.result(0));
}

void write_values(const std::vector<double>& from, const TensorView& to) {
  if (to.dtype == DType::f64)
    std::copy(from.begin(), from.end(), static_cast<double*>(to.data));
  else if (to.dtype == DType::f32)
    std::transform(from.begin(), from.end(), static_cast<float*>(to.data),
                   [](double v) { return static_cast<float>(v); });
  else
    refuse_field(kJax, "parameters", "must be float32 or float64", dtype_name(to.dtype));
}

void clear(const TensorView& v) {
  std::memset(v.data, 0, static_cast<std::size_t>(v.count() * size_of(v.dtype)));
}

// The same where the parameters are tables that are added, of float32 or float64.
bool gradient_of_tables(const Call& c) {
  const ConstTensorView x = c.argument(1);
  const auto tables = tables_of(c, x, c.argument(2), 3);
  if (!tables || size_of(x.dtype) < 4) return false;
  std::vector<TensorView> d;
  for (Index i = 0; i < c.arguments() - 2; ++i) {  // of x and of each parameter
    d.push_back(c.result(i));
    clear(d.back());
  }
  return add_table_gradients(*tables, c.argument(0), d[0], std::span(d).subspan(1));
}

// d_y, x, positions, parameters -> d_x, gradients of the parameters
void compose_gradient_call(const Call& c) {
  const ConstTensorView d_y = c.argument(0), x = c.argument(1);
  if (gradient_of_tables(c)) return;
  const std::shared_ptr<const LoweredRows> kept_rows = rows_of(c, x.dtype, 3);
  const LoweredRows& rows = *kept_rows;
  const OwnedInputGradients g = zero_gradients(rows.lowered);
  const auto rank = static_cast<std::size_t>(x.rank);
  std::vector<std::byte> work(
      rows.plan.gradient_workspace(rank == 3 ? x.shape[0] : 1, rank >= 2 ? x.shape[rank - 2] : 0));
  rows.plan.gradient(x, positions(c.argument(2)), d_y, c.result(0), g.terms, work);
  std::vector<std::vector<double>> d(rows.parameters.size());
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < d.size(); ++i) {
    d[i].resize(rows.values[i].size());
    views.push_back(tensor(d[i].data(), DType::f64, rows.parameters[i].shape));
  }
  with_absolute(rows.encoding, [&](const auto& s) { s.pull_back(rows.views(), g.terms, views); });
  for (std::size_t i = 0; i < d.size(); ++i)
    write_values(d[i], c.result(1 + static_cast<Index>(i)));
}

xla::Error* error_of(const xla::CallFrame& f, const char* message, int code) {
  xla::ErrorArguments e{sizeof e, nullptr, message, code};
  return f.api->make_error(&e);
}

template <void work(const Call&)>
xla::Error* handle(xla::CallFrame* f) noexcept {
  for (xla::Extension* e = f->extensions; e != nullptr; e = e->next)
    if (e->type == xla::kMetadata) {
      xla::Metadata& m = *reinterpret_cast<xla::MetadataExtension*>(e)->metadata;
      m.version.major_version = xla::kMajor;
      m.version.minor_version = xla::kMinor;
      m.traits = 0;
      return nullptr;
    }
  if (f->stage != xla::kExecute) return nullptr;
  try {
    work(Call(*f));
    return nullptr;
  } catch (const std::bad_alloc& e) {
    return error_of(*f, e.what(), xla::kResourceExhausted);
  } catch (const std::exception& e) {
    return error_of(*f, e.what(), xla::kInvalidArgument);
  }
}

nb::object capsule(xla::Handler* h) {
  return nb::capsule(reinterpret_cast<const void*>(h), "xla._CUSTOM_CALL_TARGET");
}

}  // namespace

void add_jax(nb::module_& m) {
  m.def(
      "jax_targets",
      [] {
        nb::dict d;
        d["posenc_rotate"] = capsule(&handle<rotate_call>);
        d["posenc_compose"] = capsule(&handle<compose_call>);
        d["posenc_compose_gradient"] = capsule(&handle<compose_gradient_call>);
        return d;
      },
      nb::sig("def jax_targets() -> dict[str, Any]"), "Handlers of posenc.jax.");
}

}  // namespace posenc::python
