// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <utility>

#include "rotary/table_store.h"

namespace posenc {

// Snapshots keep the store.
struct RotaryTable::State {
  template <class... Args>
  explicit State(Args&&... args)
      : store(std::make_shared<detail::TableStore>(std::forward<Args>(args)...)) {}
  std::shared_ptr<detail::TableStore> store;
};

}  // namespace posenc
