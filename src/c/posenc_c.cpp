// SPDX-License-Identifier: Apache-2.0
#include "posenc/posenc_c.h"

#include "c/support.h"
#include "posenc/core/isa.h"
#include "posenc/model/read.h"
#include "posenc/registry.h"
#include "posenc/version.h"

using namespace posenc::c;
using posenc::Index;

namespace {

posenc::Context context_of(std::int64_t length) {
  if (length < 0) posenc::refuse_field("c", "context", "must not be negative", Index{length});
  return posenc::Context{length};
}

void make_plan(const posenc::RotarySpec& spec, posenc_dtype dtype,
               const posenc_plan_options* options, posenc_plan** out) {
  posenc::RotaryPlan plan(spec, dtype_of(dtype), options_of(options));
  posenc_plan*& made = need(out, "plan");  // before anything is allocated
  made = new posenc_plan{std::move(plan)};
}

posenc::ModelSpec read_from(const char* path, std::int64_t context) {
  posenc::ReadOptions options;
  if (context_of(context).length > 0) options.context = context;
  return posenc::read_model(&need(path, "path"), options);
}

// A layer that is not there, or does not rotate, is a wrong argument; a model with errors a bad
// file.
posenc::RotarySpec rotary_spec(const posenc::ModelSpec& model, std::int64_t layer) {
  posenc::require_readable(model);
  const auto layers = static_cast<Index>(model.layers.size());
  if (layer < 0 || layer >= layers)
    posenc::refuse_field("c", "layer", "must be 0 to " + std::to_string(layers - 1), Index{layer});
  const auto& at = model.layers[static_cast<std::size_t>(layer)];
  if (!at.rotary)
    posenc::refuse("c",
                   model.file + ": layer " + std::to_string(layer) + " must have a rotary encoding",
                   at.scheme);
  return *at.rotary;
}

}  // namespace

struct posenc_model {
  posenc::ModelSpec spec;
};

extern "C" {

const char* posenc_version(void) {
  return posenc::kVersion;
}

posenc_status posenc_isas(char* text, size_t size, size_t* needed, posenc_error* error) {
  return guarded(error, [&] {
    std::string all;
    for (const posenc::Isa isa : posenc::supported_isas())
      all += (all.empty() ? "" : " ") + std::string(posenc::isa_name(isa));
    if (needed != nullptr) *needed = all.size() + 1;
    if (text == nullptr && size == 0) return;
    if (size < all.size() + 1)
      posenc::refuse_field("c", "text", "must have " + std::to_string(all.size() + 1) + " bytes",
                           static_cast<Index>(size));
    std::memcpy(&need(text, "text"), all.c_str(), all.size() + 1);
  });
}

posenc_status posenc_force_isa(const char* name, posenc_error* error) {
  return guarded(error, [&] {
    if (name == nullptr)
      posenc::reset_isa();
    else
      posenc::force_isa(posenc::isa_from_name(name));
  });
}

posenc_status posenc_set_threads(int64_t threads, posenc_error* error) {
  return guarded(error, [&] { posenc::set_default_threads(threads); });
}

posenc_status posenc_set_executor(const posenc_executor* executor, posenc_error* error) {
  return guarded(error, [&] {
    if (executor == nullptr) {
      posenc::set_default_threads(0);
      return;
    }
    const posenc_executor e =
        taken(*executor, {sizeof(posenc_executor), nullptr, 1, nullptr}, "executor");
    if (e.run == nullptr) posenc::refuse_field("c", "executor.run", "must not be null");
    posenc::set_default_executor({e.context, e.concurrency, e.run});
  });
}

posenc_status posenc_plan_from_scheme(const char* scheme, int64_t context, posenc_dtype dtype,
                                      const posenc_plan_options* options, posenc_plan** plan,
                                      posenc_error* error) {
  return guarded(error, [&] {
    const std::string_view text(&need(scheme, "scheme"));
    make_plan(posenc::resolve(posenc::parse_encoding(text), context_of(context)), dtype, options,
              plan);
  });
}

posenc_status posenc_plan_from_model(const char* path, int64_t layer, int64_t context,
                                     posenc_dtype dtype, const posenc_plan_options* options,
                                     posenc_plan** plan, posenc_error* error) {
  return guarded(error, [&] {
    make_plan(rotary_spec(read_from(path, context), layer), dtype, options, plan);
  });
}

posenc_status posenc_model_read(const char* path, int64_t context, posenc_model** model,
                                posenc_error* error) {
  return guarded(error, [&] {
    posenc::ModelSpec spec = read_from(path, context);
    posenc_model*& made = need(model, "model");
    made = new posenc_model{std::move(spec)};
  });
}

int64_t posenc_model_layers(const posenc_model* model) {
  return model == nullptr ? 0 : static_cast<int64_t>(model->spec.layers.size());
}

int64_t posenc_model_findings(const posenc_model* model) {
  return model == nullptr ? 0 : static_cast<int64_t>(model->spec.findings.size());
}

posenc_status posenc_model_finding(const posenc_model* model, int64_t index,
                                   posenc_finding* finding, posenc_error* error) {
  return guarded(error, [&] {
    const auto& all = need(model, "model").spec.findings;
    if (index < 0 || index >= static_cast<Index>(all.size()))
      posenc::refuse_field("c", "index",
                           "must be one of the " + std::to_string(all.size()) + " findings",
                           Index{index});
    const posenc::Finding& f = all[static_cast<std::size_t>(index)];
    const posenc_severity severity = f.severity == posenc::Severity::note      ? POSENC_NOTE
                                     : f.severity == posenc::Severity::warning ? POSENC_WARNING
                                                                               : POSENC_ERROR;
    fill(need(finding, "finding"),
         {sizeof(posenc_finding), severity, f.code.c_str(), f.message.c_str(), f.where.c_str(),
          f.fix.c_str()},
         "finding");
  });
}

posenc_status posenc_plan_from_layer(const posenc_model* model, int64_t layer, posenc_dtype dtype,
                                     const posenc_plan_options* options, posenc_plan** plan,
                                     posenc_error* error) {
  return guarded(error, [&] {
    make_plan(rotary_spec(need(model, "model").spec, layer), dtype, options, plan);
  });
}

void posenc_model_free(posenc_model* model) {
  delete model;
}

void posenc_plan_free(posenc_plan* plan) {
  delete plan;
}

posenc_status posenc_plan_describe(const posenc_plan* plan, posenc_plan_info* info,
                                   posenc_error* error) {
  return guarded(error, [&] {
    const posenc::RotarySpec& spec = need(plan, "plan").plan.spec();
    posenc_plan_info i{};
    i.head_dim = spec.head_dim;
    i.axes = spec.axes();
    i.blocks = static_cast<std::int64_t>(spec.blocks.size());
    i.row_columns = plan->plan.row_columns();
    i.valid_from = spec.valid_from();
    i.valid_to = spec.valid_to();
    i.attention_factor = spec.blocks.empty() ? 1.0 : spec.blocks[0].spectrum.gain;
    i.logit_factor = spec.blocks.empty() ? 1.0 : spec.logit_factor();
    fill(need(info, "info"), i, "info");
  });
}

posenc_status posenc_apply(const posenc_plan* plan, const char* layout, const PosencDLTensor* q,
                           const PosencDLTensor* k, const PosencDLTensor* q_out,
                           const PosencDLTensor* k_out, const PosencDLTensor* positions,
                           posenc_rotate_mode mode, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    const posenc::Positions p = positions_of(positions);
    const posenc::RotaryPlan& rotary = need(plan, "plan").plan;
    call_with(o, [&](const auto&... x) { rotary.apply(x..., p, mode_of(mode)); });
  });
}

posenc_status posenc_rows(const posenc_plan* plan, const PosencDLTensor* positions,
                          const PosencDLTensor* rows, posenc_error* error) {
  return guarded(error, [&] {
    need(plan, "plan").plan.rows(positions_of(positions), posenc::from_dlpack(need(rows, "rows")));
  });
}

posenc_status posenc_apply_rows(const posenc_plan* plan, const char* layout,
                                const PosencDLTensor* q, const PosencDLTensor* k,
                                const PosencDLTensor* q_out, const PosencDLTensor* k_out,
                                const PosencDLTensor* rows, posenc_rotate_mode mode,
                                posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    const posenc::ConstTensorView v = posenc::const_from_dlpack(need(rows, "rows"));
    const posenc::RotaryPlan& rotary = need(plan, "plan").plan;
    call_with(o, [&](const auto&... x) { rotary.apply_rows(x..., v, mode_of(mode)); });
  });
}

}  // extern "C"
