// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <utility>

#include "rotary/table_store.h"

namespace posenc::inline v0::detail {

// Snapshots keep the store.
struct RotaryTableState {
  template <class... Args>
  explicit RotaryTableState(Args&&... args)
      : store(std::make_shared<TableStore>(std::forward<Args>(args)...)) {}
  std::shared_ptr<TableStore> store;
};

}  // namespace posenc::v0::detail
