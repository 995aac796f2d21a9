// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "posenc/report/checks.h"

namespace posenc::bench {

// posenc bench. Its lines go to Request::out as they are measured, JSON into the report.
report::Report bench_report(const report::BenchOptions&, const report::Request&);

}  // namespace posenc::bench
