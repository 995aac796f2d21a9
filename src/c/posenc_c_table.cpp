// SPDX-License-Identifier: Apache-2.0
// The C interface to tables of rows: in memory, in files, and read by the caller.
#include "c/support.h"

using namespace posenc::c;

struct posenc_snapshot {
  posenc::RotaryTable::Snapshot rows;
};

namespace {

posenc::BeyondTable beyond(int grows) {
  return grows != 0 ? posenc::BeyondTable::grow : posenc::BeyondTable::refuse;
}

}  // namespace

extern "C" {

posenc_status posenc_table_create(const posenc_plan* plan, int64_t count, posenc_dtype dtype,
                                  posenc_row_layout layout, int grows, posenc_table** table,
                                  posenc_error* error) {
  return guarded(error, [&] {
    posenc_table*& out = need(table, "table");
    out = new posenc_table{posenc::RotaryTable(need(plan, "plan").plan.spec(), count,
                                               dtype_of(dtype), row_layout(layout), beyond(grows))};
  });
}

posenc_status posenc_table_grow(posenc_table* table, int64_t count, posenc_error* error) {
  return guarded(error, [&] { need(table, "table").table.grow(count); });
}

posenc_status posenc_table_replace(posenc_table* table, const posenc_plan* plan,
                                   posenc_error* error) {
  return guarded(error,
                 [&] { need(table, "table").table.replace(need(plan, "plan").plan.spec()); });
}

posenc_status posenc_table_save(const posenc_table* table, const char* path,
                                posenc_row_layout layout, posenc_error* error) {
  return guarded(error,
                 [&] { need(table, "table").table.save(&need(path, "path"), row_layout(layout)); });
}

posenc_status posenc_table_map(const char* path, const posenc_plan* plan, posenc_row_layout layout,
                               int grows, posenc_table** table, posenc_error* error) {
  return guarded(error, [&] {
    posenc_table*& out = need(table, "table");
    out = new posenc_table{posenc::RotaryTable::map(
        &need(path, "path"), need(plan, "plan").plan.spec(), beyond(grows), row_layout(layout))};
  });
}

int64_t posenc_table_size(const posenc_table* table) {
  return table == nullptr ? 0 : table->table.size();
}

posenc_status posenc_table_snapshot(const posenc_table* table, posenc_snapshot** snapshot,
                                    PosencDLTensor* rows, posenc_error* error) {
  return guarded(error, [&] {
    PosencDLTensor& view = need(rows, "rows");
    posenc_snapshot*& out = need(snapshot, "snapshot");
    out = new posenc_snapshot{need(table, "table").table.snapshot()};
    view = posenc::to_dlpack(out->rows.cos_sin);
  });
}

void posenc_snapshot_free(posenc_snapshot* snapshot) {
  delete snapshot;
}

posenc_status posenc_apply_table(const posenc_plan* plan, const char* layout,
                                 const PosencDLTensor* q, const PosencDLTensor* k,
                                 const PosencDLTensor* q_out, const PosencDLTensor* k_out,
                                 const posenc_table* table, const PosencDLTensor* positions,
                                 posenc_rotate_mode mode, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    const posenc::Positions p = positions_of(positions);
    const posenc::RotaryPlan& rotary = need(plan, "plan").plan;
    const posenc::RotaryTable& rows = need(table, "table").table;
    call_with(o, [&](const auto&... x) { posenc::apply(rotary, x..., rows, p, mode_of(mode)); });
  });
}

void posenc_table_free(posenc_table* table) {
  delete table;
}

}  // extern "C"
