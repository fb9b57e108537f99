/* Files that are taken up again: bytes stay, cuts and offsets are exact, two writers of one file do
 * not meet, and the tests' own limit stops every change from the one it names on. */
#define _GNU_SOURCE /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/resume_file.h"

static char folder[] = "/tmp/sluice_test_resume_XXXXXX";
static char path[64], other[64];
static struct sl_budget budget;
static sluice_error error;

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/f", folder);
    snprintf(other, sizeof other, "%s/g", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, UINT64_MAX);
    memset(&error, 0, sizeof error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(other);
    assert_int_equal(sl_budget_used(&budget), 0);
    return 0;
}

static struct sl_resume_file *open_file(struct sl_resume_limit *limit)
{
    struct sl_resume_file *f;

    assert_int_equal(sl_resume_file_open(path, limit, &budget, &error, &f), SLUICE_OK);
    return f;
}

static void test_open__again__what_was_written_is_there(void **state)
{
    char found[8];
    uint64_t bytes;
    (void)state;
    struct sl_resume_file *f = open_file(NULL);
    assert_int_equal(sl_resume_file_write(f, 3, "abc", 3, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_sync(f, &error), SLUICE_OK);
    sl_resume_file_close(f);
    f = open_file(NULL);
    assert_int_equal(sl_resume_file_bytes(f, &bytes, &error), SLUICE_OK);
    assert_int_equal(bytes, 6);
    assert_int_equal(sl_resume_file_read(f, 0, found, 6, &error), SLUICE_OK);
    assert_memory_equal(found, "\0\0\0abc", 6);
    assert_int_equal(sl_resume_file_read(f, 4, found, 3, &error), SLUICE_E_TRUNCATED);
    assert_int_equal(sl_resume_file_cut(f, 4, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_cut(f, 5, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_read(f, 3, found, 2, &error), SLUICE_OK);
    assert_memory_equal(found, "a\0", 2);
    sl_resume_file_close(f);
}

static void test_open__open_already__refused(void **state)
{
    struct sl_resume_file *second;
    (void)state;
    struct sl_resume_file *f = open_file(NULL);
    assert_int_equal(sl_resume_file_open(path, NULL, &budget, &error, &second), SLUICE_E_IO);
    assert_null(second);
    assert_non_null(strstr(error.text, "another process"));
    sl_resume_file_close(f);
    sl_resume_file_close(open_file(NULL));
}

/* Another process removes the file and lets its lock go, as packing does with a journal at the end:
 * whoever waited for it must not go on with a file that nobody finds. */
static void test_open__removed_while_it_waits__opens_the_one_with_the_name(void **state)
{
    const struct timespec pause = {0, 200000000L};
    char go;
    int ready[2], status = 1;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sl_resume_file *f;
        if (sl_resume_file_open(path, NULL, &budget, &error, &f) != SLUICE_OK) _exit(2);
        if (write(ready[1], "x", 1) != 1) _exit(3);
        nanosleep(&pause, NULL);
        _exit(unlink(path)); /* the lock goes with it */
    }
    assert_int_equal(read(ready[0], &go, 1), 1);
    struct sl_resume_file *f = open_file(NULL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(sl_resume_exists(path));
    assert_int_equal(sl_resume_file_check_name(f, path, &error), SLUICE_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sl_resume_file_check_name(f, path, &error), SLUICE_E_CHANGED);
    sl_resume_file_close(open_file(NULL)); /* another file of that name */
    assert_int_equal(sl_resume_file_check_name(f, path, &error), SLUICE_E_CHANGED);
    assert_non_null(strstr(error.text, "removed or replaced"));
    sl_resume_file_close(f);
    close(ready[0]);
    close(ready[1]);
}

static void test_open__no_file_to_write__refused(void **state)
{
    struct sl_resume_file *f;
    (void)state;
    assert_int_equal(sl_resume_file_open(folder, NULL, &budget, &error, &f), SLUICE_E_IO);
    assert_int_equal(sl_resume_file_open("/no/such/folder/f", NULL, &budget, &error, &f),
                     SLUICE_E_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sl_resume_file_open(path, NULL, &budget, &error, &f), SLUICE_E_IO);
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(sl_resume_file_open(path, NULL, &budget, &error, &f), SLUICE_E_IO);
    assert_false(sl_resume_exists(other));
    assert_null(f);
}

static void test_limit__used_up__every_change_fails_and_none_happens(void **state)
{
    struct sl_resume_limit limit = {2};
    uint64_t bytes;
    (void)state;
    struct sl_resume_file *f = open_file(&limit);
    assert_int_equal(sl_resume_file_write(f, 0, "ab", 2, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_sync(f, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_write(f, 2, "cd", 2, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_file_cut(f, 0, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_file_sync(f, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_rename(path, other, &limit, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_remove(path, &limit, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_file_bytes(f, &bytes, &error), SLUICE_OK);
    assert_int_equal(bytes, 2);
    sl_resume_file_close(f);
    assert_true(sl_resume_exists(path));
}

static void test_names__renamed_and_removed__as_said(void **state)
{
    (void)state;
    sl_resume_file_close(open_file(NULL));
    assert_int_equal(sl_resume_rename(path, other, NULL, &error), SLUICE_OK);
    assert_false(sl_resume_exists(path));
    assert_true(sl_resume_exists(other));
    assert_int_equal(sl_resume_rename(path, other, NULL, &error), SLUICE_E_IO);
    assert_int_equal(sl_resume_remove(other, NULL, &error), SLUICE_OK);
    assert_int_equal(sl_resume_remove(other, NULL, &error), SLUICE_OK);
    assert_false(sl_resume_exists(other));
}

static void test_room__a_folder_or_none__a_number_or_unknown(void **state)
{
    (void)state;
    uint64_t room = sl_resume_room(path);
    assert_true(room > 0 && room < UINT64_MAX);
    assert_true(sl_resume_room("/no/such/folder/f") == UINT64_MAX);
    assert_true(sl_resume_room("f") < UINT64_MAX);
    assert_true(sl_resume_room("/f") < UINT64_MAX);
    assert_int_equal(sl_resume_occupied(path), 0);
    static const char data[100000] = {1};
    struct sl_resume_file *f = open_file(NULL);
    assert_int_equal(sl_resume_file_write(f, 0, data, sizeof data, &error), SLUICE_OK);
    assert_int_equal(sl_resume_file_sync(f, &error), SLUICE_OK);
    sl_resume_file_close(f);
    assert_true(sl_resume_occupied(path) <= 1 << 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_open__again__what_was_written_is_there),
        TEST(test_open__open_already__refused),
        TEST(test_open__removed_while_it_waits__opens_the_one_with_the_name),
        TEST(test_open__no_file_to_write__refused),
        TEST(test_limit__used_up__every_change_fails_and_none_happens),
        TEST(test_names__renamed_and_removed__as_said),
        TEST(test_room__a_folder_or_none__a_number_or_unknown),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
