/* Functions of the C library that this library stands before. Another preloaded library may stand
 * before them as well, and is to be called: RTLD_NEXT finds it.
 */
#ifndef MRC_NEXT_H
#define MRC_NEXT_H

#include <dlfcn.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define NEXT(result, name, types) static result(*real) types; \
    if (!real) real = (result(*) types)(uintptr_t)dlsym(RTLD_NEXT, #name)

#endif
