package cuda

import "os"

const roleVariable = "KVPROOF_CUDA_CHILD"

func child(role string) int { _ = os.Args; return 1 }
