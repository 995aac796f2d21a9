// SPDX-License-Identifier: Apache-2.0
// operator new of this program counts how often it is called, by any thread.
#pragma once

namespace posenc::test {

long allocations();

}  // namespace posenc::test
