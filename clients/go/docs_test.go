package larder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs in the documents work as they stand, but for the server's address.
func TestProgramsOfTheDocumentsRun(t *testing.T) {
	socket, _ := live(t)
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, document := range []string{"../../README.md", "../../docs/clients.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```go\n")[1:] {
			program, _, _ := strings.Cut(block, "```")
			_, wanted, found := strings.Cut(program, "// Output: ")
			if !found {
				t.Errorf("%s: a program says nothing about its output:\n%s", document, program)
				continue
			}
			wanted, _, _ = strings.Cut(wanted, "\n")
			home := t.TempDir()
			program = strings.ReplaceAll(program, "127.0.0.1:11211", socket)
			if err := os.WriteFile(filepath.Join(home, "main.go"), []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			// In a new user's module, as README.md says; nothing is downloaded.
			var output []byte
			for _, words := range [][]string{
				{"mod", "init", "example"},
				{"mod", "edit", "-replace", "larder.example/clients/go=" + here},
				{"mod", "tidy"},
				{"run", "."},
			} {
				step := exec.Command("go", words...)
				step.Dir = home
				step.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
				if words[0] == "run" {
					output, err = step.Output()
				} else {
					output, err = step.CombinedOutput()
				}
				if err != nil {
					t.Fatalf("%s: go %s: %v\n%s", document, strings.Join(words, " "), err, output)
				}
			}
			if strings.TrimSpace(string(output)) != wanted {
				t.Errorf("%s: %s", document, output)
			}
			programs++
		}
	}
	if programs != 4 {
		t.Errorf("%d programs", programs)
	}
}
