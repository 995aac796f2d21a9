// SPDX-License-Identifier: Apache-2.0
// The spine: what most programs need. Beside it: registry.h (every scheme by name), model/read.h
// (models' files), io/ (files of arrays), posenc_c.h (the C interface).
#pragma once
#include "posenc/core/describe.h"
#include "posenc/core/dtype.h"
#include "posenc/core/error.h"
#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/core/isa.h"
#include "posenc/core/precision.h"
#include "posenc/core/tensor_view.h"
#include "posenc/phase.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rerotate.h"
#include "posenc/rotary/rope.h"
#include "posenc/rotary/spec.h"
#include "posenc/rotary/table.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/policy.h"
#include "posenc/version.h"
