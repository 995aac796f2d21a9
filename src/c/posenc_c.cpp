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
  if (length < 0) posenc::refuse("c", "context must not be negative", Index{length});
  return posenc::Context{length};
}

void make_plan(const posenc::RotarySpec& spec, posenc_dtype dtype, posenc_plan** out) {
  posenc::RotaryPlan plan(spec, dtype_of(dtype));
  posenc_plan*& made = need(out, "plan");  // before anything is allocated
  made = new posenc_plan{std::move(plan)};
}

}  // namespace

extern "C" {

const char* posenc_version(void) {
  return posenc::kVersion;
}

posenc_status posenc_isas(char* text, size_t size, size_t* needed, posenc_error* error) {
  return guarded(error, [&] {
    std::string all;
    for (const posenc::Isa isa : posenc::supported_isas())
      all += (all.empty() ? "" : " ") + std::string(posenc::name(isa));
    if (needed != nullptr) *needed = all.size() + 1;
    if (text == nullptr && size == 0) return;
    if (size < all.size() + 1)
      posenc::refuse("c", "text must have " + std::to_string(all.size() + 1) + " bytes",
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

posenc_status posenc_plan_from_scheme(const char* scheme, int64_t context, posenc_dtype dtype,
                                      posenc_plan** plan, posenc_error* error) {
  return guarded(error, [&] {
    const std::string_view text(&need(scheme, "scheme"));
    make_plan(posenc::resolve(posenc::parse_encoding(text), context_of(context)), dtype, plan);
  });
}

posenc_status posenc_plan_from_model(const char* path, int64_t layer, int64_t context,
                                     posenc_dtype dtype, posenc_plan** plan, posenc_error* error) {
  const posenc_status read = guarded(error, [&] {
    posenc::ReadOptions options;
    if (context_of(context).length > 0) options.context = context;
    const posenc::ModelSpec model = posenc::read_model(&need(path, "path"), options);
    if (model.has_error())
      for (const posenc::Finding& f : model.findings)
        if (f.severity == posenc::Severity::error)
          throw posenc::FormatError(model.file, f.where, f.message);
    const auto layers = static_cast<Index>(model.layers.size());
    if (layer < 0 || layer >= layers)
      posenc::refuse("c", "layer must be 0 to " + std::to_string(layers - 1), Index{layer});
    const auto& rotary = model.layers[static_cast<std::size_t>(layer)].rotary;
    if (!rotary)
      posenc::refuse(
          "c", model.file + ": layer " + std::to_string(layer) + " must have a rotary encoding",
          model.layers[static_cast<std::size_t>(layer)].scheme);
    make_plan(*rotary, dtype, plan);
  });
  return read;
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
    need(info, "info") = i;
  });
}

posenc_status posenc_apply(const posenc_plan* plan, const char* layout, const PosencDLTensor* q,
                           const PosencDLTensor* k, const PosencDLTensor* q_out,
                           const PosencDLTensor* k_out, const PosencDLTensor* positions,
                           posenc_sense mode, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    need(plan, "plan").plan.apply(o.in, o.out, positions_of(positions), sense_of(mode));
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
                                const PosencDLTensor* rows, posenc_sense mode,
                                posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    need(plan, "plan")
        .plan.apply_rows(o.in, o.out, posenc::from_dlpack(need(rows, "rows")), sense_of(mode));
  });
}

}  // extern "C"
